"""A race on images as R12 (PR Fig. 5) runs it: its sizes, and what comes of it."""

from dataclasses import dataclass
from math import inf
from typing import Literal

TITLES = {
    "convex": "penalty form (11)",
    "sgd": "SGD, path norm",
    "adam": "Adam, path norm",
    "adagrad": "Adagrad, path norm",
    "adadelta": "Adadelta, path norm",
    "decay": "SGD, weight decay",
}


@dataclass(frozen=True)
class Config:
    """A size of the experiment.

    Attributes:
        name: what the result is called.
        n_networks, width: K and m_1.
        images: how many training images, all if None.
        batch_size, seconds: of every method.
        validation: how many further training images choose the learning rates; with none they are PR's.
        tuning_seconds: for every learning rate of every method.
        clock: the wall's, or the processor's with one thread.
        decoded: whether the penalty form's end is decoded, in float64 and on the host.
        certified: on how many of the training images the penalty form is also solved exactly, 0 for none.
        beta, lam, momentum: of PR; loss and h_C are means over samples.
        max_epochs: where a race ends in any case.
    """

    name: str
    n_networks: int
    width: int
    images: int | None
    batch_size: int
    seconds: float
    validation: int = 0
    tuning_seconds: float = 0.0
    clock: Literal["wall", "processor"] = "wall"
    decoded: bool = False
    certified: int = 0
    beta: float = 1e-3
    lam: float = 1e-5
    momentum: float = 0.9
    max_epochs: float = inf

    def __post_init__(self) -> None:
        for name in ("n_networks", "width", "batch_size", "seconds", "beta", "max_epochs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        if self.images is not None and self.images < 1:
            raise ValueError(f"images must be at least 1, got {self.images}; use None for all there are.")
        for name in ("lam", "validation", "certified"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}; use 0 to go without.")
        if self.validation and not self.tuning_seconds > 0:
            raise ValueError(f"tuning_seconds must be positive, got {self.tuning_seconds}; use validation=0 instead.")
        if self.clock not in ("wall", "processor"):
            raise ValueError(f'clock must be "wall" or "processor", got {self.clock!r}; use "wall" on a GPU.')


@dataclass(frozen=True)
class Point:
    """A model after some seconds: its objective on the training images, and its accuracy on the test images."""

    seconds: float
    epochs: float
    objective: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """One method.

    Attributes:
        tried: learning rates and what they reached on the validation images, empty if none was tuned.
        points: the first one is the start.
    """

    method: str
    optimiser: str
    rate: float
    tried: tuple[tuple[float, float], ...]
    points: tuple[Point, ...]

    @property
    def highest(self) -> float:
        """The highest accuracy on the way; chosen on the test images, so better than a stopping rule could be."""
        return max(point.accuracy for point in self.points)

    def seconds_to(self, accuracy: float) -> float:
        return next((point.seconds for point in self.points if point.accuracy >= accuracy), inf)


@dataclass(frozen=True)
class Decoded:
    """The gated model that the penalty form ended at, and the ReLU network that agrees with it on the training images.

    Attributes:
        violation: the share of signs of the gated model that its gates contradict.
        gated_train, gated_test: accuracies of the gated model.
        train, test: accuracies of the ReLU network.
        objective: its mean loss + beta * path norm (PR eq. 4); the zero network has 1/2.
        growth: its path norm over the norm of the gated model.
    """

    violation: float
    gated_train: float
    gated_test: float
    train: float
    test: float
    objective: float
    growth: float

    def __str__(self) -> str:
        return (
            f"The gated model: train accuracy {self.gated_train:.4f}, test accuracy {self.gated_test:.4f}, "
            f"{self.violation:.1%} of the signs contradict the gates. Decoded ReLU network: {self.train:.4f} and "
            f"{self.test:.4f}, objective of (4) {self.objective:.4g} (zero network 0.5), path norm {self.growth:.3g} "
            "times the norm of the gated model."
        )


@dataclass(frozen=True)
class Certified:
    """The penalty form on some training images: the exact gated model, and descent for half of the seconds.

    Attributes:
        dual: a certified lower bound of the gated model over the sampled cells, and so of (11).
        gated: the objective of the gated model that was found.
        exact, exact_accuracy, seconds: objective of (11) there, its test accuracy, and what it took.
        descent, descent_accuracy: of descent on (11).
    """

    n: int
    dual: float
    gated: float
    exact: float
    exact_accuracy: float
    seconds: float
    descent: float
    descent_accuracy: float

    def __str__(self) -> str:
        return (
            f"On {self.n} images the optimum of (11) is between {self.dual:.3g} (certified) and {self.exact:.3g}, the "
            f"gated model's gap is {1 - self.dual / self.gated:.1e}, found in {self.seconds:.1f} s, test accuracy "
            f"{self.exact_accuracy:.4f}; descent ended at {self.descent:.3g}, accuracy {self.descent_accuracy:.4f}."
        )


@dataclass(frozen=True)
class Panel:
    """One data set."""

    name: str
    n: int
    d: int
    note: str
    curves: tuple[Curve, ...]
    decoded: Decoded | None
    certified: Certified | None
    n_test: int = 10_000
