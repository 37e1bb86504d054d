"""Pairs of methods on the same splits: who wins on how many sets of R13 (PR Table 3), and beyond which noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.stats import binomtest

from bidual.papers.uci.study import Row

PAIRS = {
    "SGD": ("convex_sgd", "sgd"),
    "Adam": ("convex_adam", "adam"),
    "exact against SGD": ("exact", "sgd"),
    "exact against Adam": ("exact", "adam"),
    "ReLU network against Adam": ("relu", "adam"),
}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Duel:
    """Two methods on the same splits of one set: accuracy of the first minus that of the second."""

    name: str
    differences: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Zero if it is only rounding."""
        value = fmean(self.differences)
        return value if abs(value) > _ROUNDING else 0.0

    @property
    def error(self) -> float:
        """The standard error over splits, which share samples: rather too small."""
        several = len(self.differences)
        return stdev(self.differences) / sqrt(several) if several > 1 else 0.0

    @property
    def clear(self) -> bool:
        """Whether the mean is more than two standard errors from zero."""
        return abs(self.mean) > 2 * self.error + _ROUNDING


@dataclass(frozen=True)
class Count:
    """Duels over all sets.

    Attributes:
        wins, ties, losses: sets by their mean over splits.
        clear_wins, clear_losses: of these, with a mean beyond two standard errors.
        p_value: of the two-sided sign test over sets, without ties.
        at_least: for every split by itself, the sets on which the first method is at least as good, PR's own count.
        mean, error: over sets.
    """

    wins: int
    ties: int
    losses: int
    clear_wins: int
    clear_losses: int
    p_value: float
    at_least: tuple[int, ...]
    mean: float
    error: float

    @classmethod
    def of(cls, duels: Sequence[Duel]) -> "Count":
        wins, losses = ([duel for duel in duels if sign * duel.mean > 0] for sign in (1, -1))
        decided = len(wins) + len(losses)
        overall = Duel("all", tuple(duel.mean for duel in duels))
        by_split = zip(*(duel.differences for duel in duels), strict=True)
        return cls(
            len(wins),
            len(duels) - decided,
            len(losses),
            sum(duel.clear for duel in wins),
            sum(duel.clear for duel in losses),
            float(binomtest(len(wins), decided).pvalue) if decided else 1.0,
            tuple(sum(one >= -_ROUNDING for one in split) for split in by_split),
            overall.mean,
            overall.error,
        )


def duels(rows: Sequence[Row], scaling: str, pair: str) -> list[Duel]:
    """A duel for each set; a corrected variant of a set is not one of PR's and does not count."""
    found = {(row.name, row.method): row for row in rows if row.scaling == scaling}
    first, second = PAIRS[pair]
    return [
        Duel(name, tuple(a - b for a, b in zip(found[name, first].accuracies, row.accuracies, strict=True)))
        for (name, method), row in found.items()
        if method == second and (name, first) in found and not name.endswith("-corrected")
    ]
