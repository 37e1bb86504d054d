"""The words of a table of a race: what was demanded, who reached it, and who did not."""

import math
from typing import NamedTuple

from race_results import OURS, CaseResult, Ending, Ratio, Run

_LONGEST = 60  # characters of an error message
_VERDICTS = {True: "yes", False: "no", None: "open"}


class Row(NamedTuple):
    """One problem in words; ``rivals`` has a text for each that took part."""

    work: str
    target: str
    ours: str
    rivals: dict[str, str]
    ratio: str
    met: str


def row(case: CaseResult) -> Row:
    rivals = {run.system: _rival(case, run) for run in case.rivals}
    ours = next(run for run in case.runs if run.system == OURS)
    return Row(case.label, _target(case), _seconds(case, ours), rivals, _ratio(case.closest), _VERDICTS[case.met])


def _target(case: CaseResult) -> str:
    factors = {need for need in case.needs.values() if need is not None}
    if len(factors) == 1:
        demands = [f"×{factors.pop():.3g}"]
    else:
        demands = [f"×{need:.3g} {system}" for system, need in case.needs.items() if need is not None]
    if case.at_most is not None:
        demands.append(f"at most {case.at_most:g} s")
    return ", ".join([f"gap {case.target:.0e}", *demands])


def _rival(case: CaseResult, run: Run) -> str:
    ratio, reached = case.ratio(run), run.seconds_to(case.target) is not None
    return _seconds(case, run) + (f" (×{ratio.value:.3g})" if ratio is not None and reached else "")


def _seconds(case: CaseResult, run: Run) -> str:
    """Time to the target, or how far it came and why not further."""
    seconds, gap = run.seconds_to(case.target), run.best_gap
    if seconds is not None:
        return f"{seconds:.3g} s"
    came = "no answer" if gap is None else f"gap {gap:.0e}"
    if run.ending is Ending.LIMIT:
        return f"> {case.limit:g} s, {came}"
    if run.ending is Ending.CRASH:
        return f"crash, {came}: {run.message[:_LONGEST]}"
    return f"not reached, {came} after {max((rung.cpu for rung in run.rungs), default=0.0):.3g} s"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if math.isinf(ratio.value):
        return "no rival arrives"
    return f"{'> ' if ratio.is_bound else ''}×{ratio.value:.3g} ({ratio.system})"
