"""What a race against other systems found, as `benchmarks/peers/race.py` writes it: who reached which gap, and when."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, Self

from bidual.runtime.json_text import one_line, parse_json

OURS = "bidual"


_REAL = (int, float)
_TICK = 1e-9  # seconds: a clock may have stood still


def _check_kinds(thing: object, **kinds: type | tuple[type, ...]) -> None:
    """ValueError for the first attribute that is of another kind."""
    for name, kind in kinds.items():
        value = getattr(thing, name)
        if not isinstance(value, kind) or (isinstance(value, int) and abs(value) >= 2**63):
            raise ValueError(f"{name} of a {type(thing).__name__} is {str(value)[:40]!r}")


class Ending(StrEnum):
    """How a system's run ended: all was asked that had to be, a solve took too long, or it broke down."""

    DONE = "done"
    LIMIT = "limit"
    CRASH = "crash"


@dataclass(frozen=True)
class Rung:
    """One solve: the tolerance asked for, seconds, the judge's relative gap, and the gap the system itself claims."""

    tolerance: float
    cpu: float
    wall: float
    gap: float | None
    claimed: float | None = None


@dataclass(frozen=True)
class Run:
    """All solves of one system on one problem."""

    system: str
    rungs: tuple[Rung, ...]
    ending: Ending
    message: str = ""

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        rungs = tuple(Rung(**rung) for rung in stored["rungs"])
        for rung in rungs:
            _check_kinds(rung, tolerance=_REAL, cpu=_REAL, wall=_REAL, gap=(*_REAL, NoneType))
        run = cls(stored["system"], rungs, Ending(stored["ending"]), stored["message"])
        _check_kinds(run, system=str, message=str)
        return run

    def seconds_to(self, gap: float) -> float | None:
        """CPU seconds of the fastest solve that is at least so good."""
        return min((rung.cpu for rung in self.rungs if rung.gap is not None and rung.gap <= gap), default=None)

    @property
    def best_gap(self) -> float | None:
        return min((rung.gap for rung in self.rungs if rung.gap is not None), default=None)


class Ratio(NamedTuple):
    """How many times longer a rival took than we did; a bound if it was stopped, infinite if it never arrives."""

    system: str
    value: float
    is_bound: bool


@dataclass(frozen=True)
class CaseResult:
    """One problem with everybody's runs.

    Attributes:
        name, label, spec: which problem.
        target: the relative gap to reach.
        needs: by which factor each rival is to be beaten; None is shown only.
        at_most: seconds that we may take, if that is demanded.
        limit: seconds after which a solve was stopped.
        measured: when, and at which commit.
        runs: ours and those of all rivals.
    """

    name: str
    label: str
    spec: Mapping[str, Any]
    target: float
    needs: Mapping[str, float | None]
    at_most: float | None
    limit: float
    measured: str
    runs: tuple[Run, ...]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        case = cls(**{**stored, "runs": tuple(map(Run.from_dict, stored["runs"]))})
        _check_kinds(case, name=str, label=str, spec=Mapping, target=_REAL, needs=Mapping, limit=_REAL, measured=str)
        _check_kinds(case, at_most=(*_REAL, NoneType))
        if not all(isinstance(need, (*_REAL, NoneType)) for need in case.needs.values()):
            raise ValueError(f"case {case.name} needs something else than numbers")
        if not any(run.system == OURS for run in case.runs):
            raise ValueError(f"case {case.name} has no run of {OURS}.")
        return case

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def ours(self) -> float | None:
        """Our seconds to the target."""
        return next(run for run in self.runs if run.system == OURS).seconds_to(self.target)

    @property
    def rivals(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.system != OURS)

    def ratio(self, run: Run) -> Ratio | None:
        """A rival's time over ours; None if it crashed before it arrived, or if we did not arrive."""
        theirs = run.seconds_to(self.target)
        if self.ours is None or (theirs is None and run.ending is Ending.CRASH):
            return None
        if theirs is None:
            stopped = run.ending is Ending.LIMIT
            return Ratio(run.system, self.limit / max(self.ours, _TICK) if stopped else math.inf, stopped)
        return Ratio(run.system, theirs / max(self.ours, _TICK), False)

    @property
    def closest(self) -> Ratio | None:
        """The rival that comes closest to what is demanded: the best peer, where all are to be beaten alike."""
        found = [ratio for run in self.rivals if (ratio := self.ratio(run)) is not None]
        return min(found, key=lambda ratio: ratio.value / (self.needs.get(ratio.system) or 1.0), default=None)

    @property
    def met(self) -> bool | None:
        """Whether every demand is met; None if it stays open because rivals crashed or were stopped too early."""
        if self.ours is None or (self.at_most is not None and self.ours > self.at_most):
            return False
        verdicts = [verdict for run in self.rivals for verdict in self._verdicts(run)]
        if False in verdicts:
            return False
        return None if None in verdicts or not (verdicts or self.at_most is not None) else True

    def _verdicts(self, run: Run) -> Sequence[bool | None]:
        need, ratio = self.needs.get(run.system), self.ratio(run)
        if need is None:
            return []
        if ratio is None:  # it crashed: perhaps it would have been the best
            return [None]
        return [True if ratio.value >= need else None if ratio.is_bound else False]


@dataclass(frozen=True)
class Race:
    """A whole result: where and when it was measured (``facts``), and its cases."""

    facts: Mapping[str, Any]
    cases: tuple[CaseResult, ...]

    def as_json(self) -> str:
        return json.dumps({**self.facts, "cases": [case.as_dict() for case in self.cases]}, indent=1, allow_nan=False)


def read_race(path: str | os.PathLike[str]) -> Race:
    """A race from its file; ``ValueError`` if it is something else."""
    text = Path(path).read_bytes()
    try:
        stored = parse_json(text)
        cases = tuple(CaseResult.from_dict(case) for case in stored.pop("cases"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is no result of benchmarks/peers/race.py ({type(error).__name__}: {one_line(error)}); "
            "run make bench-peers."
        ) from None
    return Race(stored, cases)
