"""How long ReLU networks take to train, without a proof: six tables, four betas, squared and log loss, one thread.

    python benchmarks/relu_training.py --data FOLDER [--tables NAME ...] [--out FILE] [--against FILE]

A run ends where the search finds no neuron that improves the objective by more than a thousandth, or after 60 seconds.
``--out`` keeps the rows; ``--against`` compares with rows that were kept from another version on the same machine: the
processor seconds until its objective is reached, within a thousandth, and their ratio.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from bidual import ConvexMLPClassifier
from bidual.problems.solution import Limits, Record
from bidual.runtime.threads import one_thread
from tables import Table, _standardised, breast_cancer, diabetes, problem, uci

SHARES, LOSSES = (0.1, 0.03, 0.01, 0.001), ("squared", "log_loss")
TOL, MOST_SECONDS = 1e-3, 60.0


def noisy_classes() -> Table:
    """768 correlated samples of 8 features, two neurons and a linear part, a logistic coin for every label."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((768, 8)) @ (np.eye(8) + 0.3 * rng.standard_normal((8, 8)))
    kinks = np.maximum(X @ rng.standard_normal(8), 0) - np.maximum(X @ rng.standard_normal(8), 0)
    score = kinks + 0.6 * X @ rng.standard_normal(8)
    score = score / score.std()
    return _standardised(X, (score + 0.7 * rng.logistic(size=768) > 0.4).astype(int))


def diabetes_classes() -> Table:
    X, y = diabetes()
    return X, (y > np.median(y)).astype(int)


TABLES: dict[str, Callable[[Path], Table]] = {
    "breast cancer": lambda data: breast_cancer(426),
    "diabetes, above the median": lambda data: diabetes_classes(),
    "wine": lambda data: _standardised(*load_wine(return_X_y=True)),
    "statlog-heart": lambda data: uci("statlog-heart", None, data),
    "ionosphere": lambda data: uci("ionosphere", None, data),
    "noisy classes, n = 768": lambda data: noisy_classes(),
}


@dataclass(frozen=True)
class Row:
    """A training run; ``course`` are processor seconds and objectives after every round."""

    table: str
    loss: str
    share: float
    seconds: float
    objective: float
    search_gap: float
    neurons: int
    course: tuple[tuple[float, float], ...]

    @property
    def key(self) -> tuple[str, str, float]:
        return self.table, self.loss, self.share

    def seconds_to(self, objective: float) -> float:
        """Until the objective is within a thousandth of another one; infinity if it never is."""
        return next((at for at, here in self.course if here <= objective * (1 + TOL)), math.inf)


def trained(table: str, share: float, loss: str, data: Path) -> Row:
    task, plan = problem(ConvexMLPClassifier, TABLES[table](data), share, loss=loss)
    course, began = list[tuple[float, float]](), time.process_time()

    def note(record: Record) -> None:
        course.append((time.process_time() - began, record.primal))

    with one_thread():
        found = plan.train(task, Limits(TOL, max_time=MOST_SECONDS), prove=False, callback=note)
    seconds, gap = time.process_time() - began, found.search_gap
    gap = math.nan if gap is None else gap
    return Row(table, loss, share, seconds, found.certificate.primal, gap, len(found.neurons), tuple(course))


def line(row: Row, other: Row | None) -> str:
    told = f"| {row.table} | {row.loss} | {row.share:g} | {row.seconds:.2f} | {row.objective:.4f} |"
    told = f"{told} {row.search_gap:.0e} | {row.neurons} |"
    if other is None:
        return told
    equal = row.seconds_to(other.objective)
    change = row.objective / other.objective - 1
    return f"{told} {other.seconds:.2f} | {change:+.2%} | {equal:.2f} | {other.seconds / equal:.1f} |"


def read(path: Path | None) -> dict[tuple[str, str, float], Row]:
    if path is None:
        return {}
    rows = [Row(**{**row, "course": tuple(map(tuple, row["course"]))}) for row in json.loads(path.read_text())]
    return {row.key: row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args()
    others, rows, ratios = read(given.against), list[Row](), list[float]()
    for table, loss, share in ((t, o, s) for t in given.tables for o in LOSSES for s in SHARES):
        rows.append(trained(table, share, loss, given.data))
        other = others.get(rows[-1].key)
        print(line(rows[-1], other), flush=True)
        ratios += [] if other is None else [other.seconds / rows[-1].seconds_to(other.objective)]
    if ratios:
        worst = min(ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if worst > 0 else 0.0
        print(f"\nseconds to the other objective: {mean:.1f} times fewer (geometric mean), at least {worst:.1f}")
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
