"""What the bounds of a network say, in sentences that claim no more than is proved.

Percentages are shares of objectives (losses plus weight decay): gains are rounded down, what is open is rounded up.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Protocol, Self

_OPTIMAL = 1e-4  # an unproved share up to this is called optimal
_LOOSE = 0.1  # from this unproved share on the proof is called loose
_SMALLEST = 1e-12  # shares below are rounding


class Compared(Protocol):
    """What holds the numbers of a comparison."""

    @property
    def objective(self) -> float: ...
    @property
    def better_objective(self) -> float: ...
    @property
    def lower_bound(self) -> float: ...
    @property
    def constant_objective(self) -> float: ...
    @property
    def unit(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def how(self) -> str: ...


@dataclass(frozen=True)
class Comparison:
    """A network, the best one that was found, and the bound below which there is none.

    Attributes:
        objective: of the network as it is.
        best: of the best network known, that one included.
        lower_bound: of all networks of its kind and any width.
        constant: of a constant output, with the bias that the network may have; NaN where it is not known.
        kind: what its kind is called, and that it may have any size.
        how: how the best network was found.
    """

    objective: float
    best: float
    lower_bound: float
    constant: float = math.nan
    kind: str = "two-layer ReLU network of any width"
    how: str = ""

    @classmethod
    def of(cls, found: "Compared") -> Self:
        """Of what `certify` returns, or of the JSON of `bidual certify`; in the scaling of the training loop."""
        values = (found.objective, found.better_objective, found.lower_bound, found.constant_objective)
        objective, best, lower_bound, constant = (found.unit * value for value in values)
        return cls(objective, best, lower_bound, constant, found.kind, found.how)

    @property
    def improvable(self) -> float:
        """(objective - best) / objective: how much smaller the objective of the best network found is."""
        return _share(self.objective, self.best)

    @property
    def unproved(self) -> float:
        """(best - lower bound) / best: how much better than that network another could be."""
        return _share(self.best, self.lower_bound)

    @property
    def gained(self) -> str:
        """What is improvable, as per cent for a reader, rounded down."""
        return f"{_rounded(self.improvable, ROUND_FLOOR)} %"

    @property
    def open(self) -> str:
        """What is unproved, as per cent for a reader, rounded up."""
        return f"{_rounded(self.unproved, ROUND_CEILING)} %"

    @property
    def improved(self) -> bool:
        return self.improvable > _SMALLEST

    @property
    def sentences(self) -> tuple[str, ...]:
        """The gain that was found, what is proved about the rest, and what helps to judge both."""
        return (self._gain, self._rest, *self._context())

    def __str__(self) -> str:
        return " ".join(self.sentences)

    @property
    def _gain(self) -> str:
        if not math.isfinite(self.best):
            return "Neither your network nor any other that was found has a finite objective."
        if not math.isfinite(self.objective):
            return f"The objective of your network is beyond all numbers; one with objective {self.best:.6g} was found."
        if not self.improved:
            return f"No network better than yours was found; its objective is {self.objective:.6g}."
        how = f" ({self.how})" if self.how else ""
        return (
            f"Your network can be improved by {self.gained}: a network with objective "
            f"{self.best:.6g} instead of {self.objective:.6g} was found{how}."
        )

    @property
    def _rest(self) -> str:
        it = "that one" if self.improved else "yours"
        if not 0 <= self.lower_bound < math.inf or (self.lower_bound == 0 < self.best):
            return (
                f"Nothing is proved about others: the bound is {self.lower_bound:.3g}, and no objective is below zero. "
                "A larger max_time, or a larger weight decay, may prove more."
            )
        if not self.unproved > _SMALLEST:
            return f"No {self.kind} is better than {it}: it is optimal, up to rounding."
        if self.unproved <= _LOOSE:
            optimal = " It is optimal for all practical purposes." if self.unproved <= _OPTIMAL else ""
            return f"No {self.kind} is better than {it} by more than {self.open}.{optimal}"
        return (
            f"The proof is loose: it excludes only that a {self.kind} is better than {it} by more than "
            f"{self.open}. This does not say that there is a better one: nothing is known about objectives between "
            f"{self.lower_bound:.6g} and {self.best:.6g}."
        )

    def _context(self) -> Iterator[str]:
        """What the constant output says about a network, where it says something."""
        constant, loose = self.constant, self.unproved > _LOOSE
        if not all(map(math.isfinite, (constant, self.best, self.lower_bound))) or constant <= 0:
            return
        if self.best >= constant * (1 - 1e-9):
            proved = self.unproved <= _OPTIMAL
            why = (
                "this weight decay leaves no neurons"
                if proved
                else "no neurons were found to be worth their weight decay"
            )
            yield f"The best network known has the objective of a constant output: {why}."
        elif self.objective > constant:
            yield f"Your network is worse than a constant output, without neurons: that has objective {constant:.6g}."
        elif loose and self.lower_bound > 0:
            removed = [_share(constant, value) for value in (self.objective, self.best, self.lower_bound)]
            yours, found = (_rounded(share, ROUND_FLOOR) for share in removed[:2])
            between = f", the one found {found} %" if self.improved else ""
            yield (
                f"To compare: of the objective of a constant output ({constant:.6g}) your network removes {yours} %"
                f"{between}, and no network removes more than {_rounded(removed[2], ROUND_CEILING)} %."
            )


def _share(larger: float, smaller: float) -> float:
    """How much smaller, as a share of the larger one; between zero and one."""
    if not math.isfinite(larger) or not math.isfinite(smaller):
        return 1.0 if math.isfinite(smaller) else 0.0
    return min(max(larger - smaller, 0.0) / larger, 1.0) if larger > 0 else 0.0


def _rounded(share: float, direction: str) -> str:
    """Per cent, rounded in a direction: three digits, and of nearly all two digits of what is missing."""
    value = Decimal(100 * share)
    if not value:
        return "0"
    places = value.adjusted() - 2 if value < 99 else max((100 - value).adjusted() - 1, -9)
    found = value.quantize(Decimal(1).scaleb(places), rounding=direction).normalize()
    return f"{found:f}" if found >= Decimal("0.0001") else f"{found:.2e}"
