"""The best certified point of a run that may be killed."""

import os
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from bidual.problems.certificate import Certificate
from bidual.runtime.container import Container, Header


class _Story(Header):
    configuration: dict[str, Any]
    relative_gap: float


_FILE = Container("checkpoint of a distributed fit", 2, _Story, "delete it")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A point and a dual point to start from. The run that resumes certifies both again, so nothing is trusted.

    Attributes:
        configuration: what the run was about; a checkpoint of another one is refused.
        point, dual_point: of the best certificate so far.
        relative_gap: of that certificate.
    """

    configuration: dict[str, Any]
    point: Tensor
    dual_point: Tensor
    relative_gap: float

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file; a process that is killed meanwhile leaves the old one."""
        story = _Story(configuration=self.configuration, relative_gap=self.relative_gap)
        _FILE.write(path, story, {"point": self.point, "dual_point": self.dual_point})

    @classmethod
    def read(cls, path: str | os.PathLike[str], configuration: dict[str, Any]) -> Self | None:
        """What is in the file, if it is about this configuration; None if there is no file."""
        if not Path(path).exists():
            return None
        with _FILE.reading(path):
            story, tensors = _FILE.read(path)
            found = cls(story.configuration, tensors["point"], tensors["dual_point"], story.relative_gap)
        if found.configuration != configuration:
            raise ValueError(f"the checkpoint {path} is of another run; delete it, or give another name.")
        return found


class CheckpointWriter:
    """Writes the best certificate to a file as it comes: when its gap has halved, or after ``every`` seconds."""

    def __init__(self, path: str | os.PathLike[str], configuration: dict[str, Any], every: float = 5.0) -> None:
        self.path, self.configuration, self.every = path, configuration, every
        self.gap, self.last = inf, -inf

    def __call__(self, certificate: Certificate) -> None:
        gap = certificate.relative_gap
        if gap > self.gap / 2 and time.monotonic() - self.last < self.every:
            return
        Checkpoint(self.configuration, certificate.point, certificate.dual_point, gap).write(self.path)
        self.gap, self.last = gap, time.monotonic()
