"""The context of an experiment: data, a device, a folder for unfinished work, and a function for lines of progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bidual.io.datasets import ImageData, load_images
from bidual.io.datasets.images import Part
from bidual.io.datasets.official_files import DataDir, places
from bidual.papers.reproduction.stand_ins import stand_in_images, write_stand_in_tables
from bidual.papers.uci.data import FOLDER, load_uci


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Context:
    """Where an experiment finds what it needs.

    Attributes:
        folder: for work half done, which a later run of the same experiment and scale finds again.
        data_dir, download: of :func:`bidual.io.datasets.load_images`.
        device: of torch.
        workers: processes of studies that have many independent parts.
        stand_in: whether small generated data take the place of the official files.
        say: called with lines of progress.
    """

    folder: Path
    data_dir: DataDir = None
    download: bool = False
    device: str = "cpu"
    workers: int = 1
    stand_in: bool = False
    say: Callable[[str], None] = field(default=silent, repr=False)

    def images(self, name: str, part: Part = "all") -> ImageData:
        """A set of images by its official name."""
        if self.stand_in:
            return stand_in_images(name)
        return load_images(name, self.data_dir, part=part, download=self.download)

    def tables(self, names: Sequence[str]) -> Path:
        """The folder that holds these UCI sets as CSV files."""
        if self.stand_in:
            return write_stand_in_tables(self.folder, names)
        load_uci(names[0], self.data_dir)  # says where it looked, if in vain
        there = (place for place in places(FOLDER, self.data_dir) if (place / f"{names[0]}.csv").is_file())
        return next(there)
