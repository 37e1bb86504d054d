"""Settings of layerwise training: the network and the descent."""

import dataclasses
from dataclasses import dataclass
from typing import Any

RATES = (0.3, 0.1, 0.03, 0.01, 0.003)  # that "auto" tries; BM C.2 chooses from 1e-1 .. 1e-4 by training accuracy


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
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

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


def differences(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """What differs between two configurations, as "name 1 instead of 2"; empty if nothing does."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    return ", ".join(f"{name} {other.get(name)!r} instead of {mine.get(name)!r}" for name in names)
