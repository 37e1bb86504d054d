"""Settings of layerwise training, and its resumable state after an epoch: a safetensors file, its history as JSON."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from bidual.runtime.container import Container, Header, Tensors
from bidual.runtime.files import write_atomically
from bidual.runtime.registry import Part

RATES = (0.3, 0.1, 0.03, 0.01, 0.003)  # that "auto" tries; BM C.2 chooses from 1e-1 .. 1e-4 by training accuracy
TENSORS, STORY = "checkpoint.safetensors", "progress.json"


@dataclass(frozen=True)
class Settings:
    """The network and its training (BM C.2; the defaults are the paper's, after Belilovsky et al. 2019).

    Attributes:
        gates, factors, units: P gates of m filters each for every stage; ``units`` is 1 for two-layer stages, and the
            m_1 units of a sub-network for three-layer ones (PR Fig. 6).
        downsample: which stages begin with invertible downsampling.
        kernel, grid: sides of the filters, and of the pooled map.
        epochs, batch_size, momentum, weight_decay: of SGD on the mean loss over a batch; weight decay
            adds 1/2 weight_decay |w|^2, without the bias of the output.
        rates: the learning rate of every stage, or None: the best of ``RATES`` over ``trial`` batches.
        drop, drop_every: the learning rate is multiplied by ``drop`` every so many epochs.
        crop, flip: random shifts by so many pixels, and mirror images.
        trial: batches that a learning rate is tried on.
        seed: of gates, starts, order and augmentation.
    """

    gates: int = 256
    factors: int = 1
    units: int = 1
    downsample: tuple[bool, ...] = (False, True, False)
    kernel: int = 3
    grid: int = 2
    epochs: int = 50
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    rates: tuple[float, ...] | None = None
    drop: float = 0.2
    drop_every: int = 15
    crop: int = 4
    flip: bool = True
    trial: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rates is not None and len(self.rates) != self.n_stages:
            raise ValueError(f"{self.n_stages} stages need as many learning rates, got {len(self.rates)}.")

    @property
    def n_stages(self) -> int:
        return len(self.downsample)

    @property
    def augments(self) -> bool:
        return self.flip or self.crop > 0

    def rate_at(self, rate: float, epoch: int) -> float:
        """The learning rate in an epoch, counted from 0."""
        return rate * self.drop ** (epoch // self.drop_every)

    def to_json(self) -> dict[str, Any]:
        """As JSON, with lists instead of tuples."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def sizes(self, channels: int, n_outputs: int, count: int) -> dict[str, Any]:
        """The constructor's arguments of a network of the first ``count`` stages."""
        repeated = {name: [getattr(self, name)] * count for name in ("gates", "factors", "units")}
        return repeated | {
            "channels": channels,
            "n_outputs": n_outputs,
            "downsample": [int(down) for down in self.downsample[:count]],
            "kernel": self.kernel,
            "grid": self.grid,
        }


@dataclass(frozen=True)
class EpochRecord(Part):
    """One pass over the images: stage and epoch count from 1; loss and accuracy are means over its batches."""

    stage: int
    epoch: int
    rate: float
    loss: float
    accuracy: float
    seconds: float
    name = "epoch"


def differences(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """What differs between two configurations, as "name 1 instead of 2"; empty if nothing does."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    return ", ".join(f"{name} {other.get(name)!r} instead of {mine.get(name)!r}" for name in names)


class _Story(Header):
    configuration: dict[str, Any]
    rates: tuple[float, ...]
    kept: bool
    history: tuple[EpochRecord, ...]


_FILE = Container("checkpoint", 2, _Story, "delete it")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A training after an epoch.

    Attributes:
        configuration: settings and a fingerprint of the data; a checkpoint of another one is refused.
        rates: the learning rates of the stages begun so far.
        history: every epoch so far; the last one says where the training is.
        network: the state of the stages begun so far.
        momentum: of the optimiser of the last stage, by parameter.
        generator: the state of the random numbers.
        kept: whether the inputs of the last stage were computed once. It changes their last bits, and depends on the
            memory that was free.
    """

    configuration: dict[str, Any]
    rates: tuple[float, ...]
    history: tuple[EpochRecord, ...]
    network: dict[str, Tensor]
    momentum: tuple[Tensor, ...]
    generator: Tensor
    kept: bool = False

    @property
    def stage(self) -> int:
        """The stage of the last epoch, from 1."""
        return self.history[-1].stage

    @property
    def epoch(self) -> int:
        """The last epoch of that stage, from 1."""
        return self.history[-1].epoch

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Replace the checkpoint in a folder; a process that is killed meanwhile leaves the old one."""
        write_atomically(Path(folder) / TENSORS, self.to_bytes())
        write_atomically(Path(folder) / STORY, json.dumps(self._story.model_dump(), indent=1).encode())

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        path = Path(folder) / TENSORS
        if not path.is_file():
            raise FileNotFoundError(f"there is no checkpoint {path} to resume; train without resume first.")
        with _FILE.reading(path):
            return cls._restored(*_FILE.read(path))

    def to_bytes(self) -> bytes:
        """The content of the file of tensors."""
        tensors = {f"network.{name}": value for name, value in self.network.items()}
        tensors |= {f"momentum.{k}": value for k, value in enumerate(self.momentum)}
        return _FILE.to_bytes(self._story, tensors | {"generator": self.generator})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What :meth:`to_bytes` has made."""
        return cls._restored(*_FILE.from_bytes(data, "what rank 0 sent"))

    @property
    def _story(self) -> _Story:
        return _Story(configuration=self.configuration, rates=self.rates, kept=self.kept, history=self.history)

    @classmethod
    def _restored(cls, story: _Story, tensors: Tensors) -> Self:
        prefix = "network."
        count = sum(name.startswith("momentum.") for name in tensors)
        network = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        momentum = tuple(tensors[f"momentum.{k}"] for k in range(count))
        return cls(story.configuration, story.rates, story.history, network, momentum, tensors["generator"], story.kept)

    def check(self, configuration: dict[str, Any], folder: str | os.PathLike[str]) -> None:
        """Refuse to resume a training of another configuration."""
        if differs := differences(configuration, self.configuration):
            raise ValueError(
                f"the checkpoint in {folder} is of another configuration: {differs}; train with that, or elsewhere."
            )


def check_folder(folder: str | os.PathLike[str], resume: bool) -> None:
    """Make the folder; refuse one that holds a checkpoint which would be lost, or none where one is needed."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"the checkpoint folder {path} is a file; give the name of a folder.")
    found = (path / TENSORS).is_file()
    if resume and not found:
        raise FileNotFoundError(f"there is no checkpoint {path / TENSORS} to resume; train without resume first.")
    if found and not resume:
        raise FileExistsError(f"{path} holds a checkpoint; resume it, delete it, or choose another folder.")
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / ".writable", b"")  # an error now, not after the first epoch
    (path / ".writable").unlink()


def fingerprint(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """What a training's data are known by."""
    digest = hashlib.sha256()
    for tensor in (images, labels):
        digest.update(tensor.cpu().contiguous().numpy().data)
    pixels = str(images.dtype).removeprefix("torch.")
    return {"images": list(images.shape), "pixels": pixels, "sha256": digest.hexdigest()}
