"""The modules of the race, which live beside the package, and small results to judge it by."""

import sys
from importlib import import_module
from types import ModuleType

from helpers.places import BENCHMARKS
from race_results import CaseResult, Ending, Run, Rung

FOLDER = BENCHMARKS / "peers"


def load(name: str) -> ModuleType:
    """A module of ``benchmarks/peers``; they import each other by bare names."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return import_module(name)


def make_run(system: str, *points: tuple[float, float], ending: Ending = Ending.DONE, message: str = "") -> Run:
    """A run from pairs of seconds and gaps."""
    rungs = tuple(Rung(tolerance=gap, cpu=seconds, wall=seconds, gap=gap) for seconds, gap in points)
    return Run(system, rungs, ending, message)


def make_result(*runs: Run, needs: dict[str, float | None], at_most: float | None = None) -> CaseResult:
    """A result with target 1e-6 and a limit of 100 s."""
    return CaseResult("tiny", "tiny problem", {"n": 3}, 1e-6, needs, at_most, 100.0, "today", runs)
