"""Networks trained in torch as people train them, and what `certify` says of each: the improvable, and the unproved.

    OMP_NUM_THREADS=1 python benchmarks/processor_clock.py benchmarks/certify_trained.py [--quick] [--out FOLDER]

Every table is standardised, with at most 500 rows. The decay is 0.1 and 0.03 of the smallest beta whose optimum has no
neurons, and a weight decay of 1e-4 beside the mean loss, for an Adam network of width 64 with biases; the rows after
these change one thing at 0.1. The table is written after every row.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.nn import functional as F

import tables
from bidual import ConvexMLPClassifier, ConvexMLPRegressor, NetworkCertificate, certify
from bidual.estimators.certifying.verdict import Comparison
from bidual.runtime.files import write_atomically

HEAD = (
    "| set | rows | optimiser | width | biases | decay | beta | improvable | unproved | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)
SMALL = 1e-4  # the weight decay that people use
MOST = 500  # rows


def _wine() -> tables.Table:
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(0)) / X.std(0), y


def _teacher() -> tables.Table:
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((MOST, 10)), rng.standard_normal((10, 5))
    y = np.maximum(X @ W, 0) @ rng.standard_normal(5)
    return X, y / y.std() + 0.1 * rng.standard_normal(MOST)


SETS: dict[str, Callable[[], tables.Table]] = {
    "breast cancer": lambda: tables.breast_cancer(MOST),
    "diabetes": tables.diabetes,
    "wine": _wine,
    "digits": tables.digits,
    "Gaussian teacher": _teacher,
}


@dataclass(frozen=True)
class Case:
    """A network and how it is trained; ``share`` of beta_max, or the small weight decay."""

    name: str
    share: float | None
    optimiser: str = "adam"
    width: int = 64
    biases: bool = True

    @property
    def decay(self) -> str:
        return f"{SMALL:g}, mean loss" if self.share is None else f"{self.share:g} beta_max"


@dataclass(frozen=True)
class Row:
    """What `certify` said, and the processor seconds it took."""

    case: Case
    rows: str
    beta: float
    verdict: Comparison
    seconds: float

    def __str__(self) -> str:
        case, biases = self.case, "yes" if self.case.biases else "no"
        network = f"{case.optimiser} | {case.width} | {biases} | {case.decay} | {self.beta:.3g}"
        shares = f"{self.verdict.gained} | {self.verdict.open}"
        return f"| {case.name} | {self.rows} | {network} | {shares} | {self.seconds:.0f} |"


def main_cases() -> Iterator[Case]:
    for name in SETS:
        yield from (Case(name, share) for share in (0.1, 0.03, None))


def other_cases() -> Iterator[Case]:
    """One thing at a time is different."""
    for name in SETS:
        base = Case(name, 0.1)
        yield from (replace(base, width=width) for width in (16, 256))
        yield replace(base, optimiser="sgd")
        yield replace(base, biases=False)


def targets_of(y: NDArray[Any]) -> tuple[int, str, Callable[[Tensor], Tensor]]:
    """The number of outputs, the loss here, and the mean loss of torch."""
    classes = len(np.unique(y)) if y.dtype.kind in "iu" else 0
    if classes == 2:
        return 1, "log_loss", lambda P: F.binary_cross_entropy_with_logits(P[:, 0], torch.tensor(y, dtype=P.dtype))
    if classes > 2:
        return classes, "log_loss", lambda P: F.cross_entropy(P, torch.tensor(y))
    return 1, "squared", lambda P: F.mse_loss(P[:, 0], torch.tensor(y, dtype=P.dtype))


def trained(case: Case, X: NDArray[np.float64], y: NDArray[Any], weight_decay: float, steps: int) -> nn.Sequential:
    """The usual loop, on all samples at once, in float32."""
    torch.manual_seed(0)
    outputs, _, loss = targets_of(y)
    first, last = nn.Linear(X.shape[1], case.width, case.biases), nn.Linear(case.width, outputs, case.biases)
    network, inputs = nn.Sequential(first, nn.ReLU(), last), torch.tensor(X, dtype=torch.float32)
    settings: dict[str, Any] = {"weight_decay": weight_decay}
    adam = case.optimiser == "adam"
    optimiser = (
        torch.optim.Adam(network.parameters(), lr=5e-3, **settings)
        if adam
        else torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, **settings)
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(network(inputs)).backward()
        optimiser.step()
        schedule.step()
    return network


def weight_decay_of(case: Case, X: NDArray[np.float64], y: NDArray[Any]) -> float:
    """What the optimiser is given: of a share, that of the mean loss with this beta (docs/certify.md)."""
    if case.share is None:
        return SMALL
    number = y.dtype.kind not in "iu"
    settings = {"hidden_bias": case.biases, "fit_intercept": case.biases}
    task, _ = tables.problem(ConvexMLPRegressor if number else ConvexMLPClassifier, (X, y), case.share, **settings)
    return task.beta * (2 if number else 1) / len(X)


def judged(case: Case, seconds: float, steps: int, rows: int = MOST) -> Row:
    X, y = (part[:rows] for part in SETS[case.name]())
    weight_decay = weight_decay_of(case, X, y)
    network = trained(case, X, y, weight_decay, steps)
    loss = targets_of(y)[1]
    began = time.process_time()
    found: NetworkCertificate = certify(
        network, X, y, weight_decay=weight_decay, loss=loss, optimizer=case.optimiser, max_time=seconds
    )
    spent = time.process_time() - began
    return Row(case, f"{X.shape[0]} x {X.shape[1]}", found.beta, Comparison.of(found), spent)


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--quick", action="store_true", help="a few small rows")
    options = parser.parse_args(arguments)
    cases = [*main_cases(), *other_cases()]
    found: list[Row] = []
    for case in (*cases[3:6], *cases[19:21]) if options.quick else cases:
        size: dict[str, int] = {"steps": 50, "rows": 40} if options.quick else {"steps": 1000}
        found.append(judged(case, options.seconds, **size))
        print(found[-1], flush=True)
        write_atomically(options.out / "certify_trained.md", "\n".join([HEAD, *map(str, found), ""]).encode())
    return found


if __name__ == "__main__":
    main()
