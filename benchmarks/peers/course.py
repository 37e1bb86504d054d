"""One problem of the race: everybody is run on it in turn, and judged."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from cases import Case
from harness import write_task
from judge import Judge, claimed_gap, make_judge
from problems import make_arrays, make_betas
from race_results import CaseResult, Ending, Run, Rung
from systems import OURS, SYSTEMS
from workers import Crash, TooLong, Worker


@dataclass(frozen=True)
class _Solve:
    """One rung before the last word on its gap: later duals can be better."""

    tolerance: float
    cpu: float
    wall: float
    primals: tuple[float, ...]
    claimed: float | None


@dataclass
class _Course:
    """A case with its judge, and how to run a system on it."""

    case: Case
    judge: Judge
    environments: Path
    limit: float

    def run(self, name: str) -> tuple[list[_Solve], Ending, str]:
        """All solves of a system; ours do not stop at the target, so that a good dual is known to all."""
        solves: list[_Solve] = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._climb(name, Path(folder), solves)
            except TooLong:
                return solves, Ending.LIMIT, ""
            except Crash as crash:
                return solves, Ending.CRASH, str(crash)
        return solves, Ending.DONE, ""

    def _climb(self, name: str, folder: Path, solves: list[_Solve]) -> None:
        system, judge = SYSTEMS[name], self.judge
        tolerances = system.tolerances(self.case.target, self.case.spec.network == "relu")
        settings = {"method": system.method, "warm_up": tolerances[len(tolerances) // 2]}
        write_task(folder, judge.spec, judge.arrays, tuple(judge.betas), **settings)
        with Worker(system, self.environments, folder) as worker:
            worker.warm_up()
            for tolerance in tolerances:
                event, answer = worker.rung(tolerance, self.limit)
                primals = judge.look(answer)
                solves.append(_Solve(tolerance, event["cpu"], event["wall"], primals, claimed_gap(answer)))
                if name != OURS and judge.gap(primals) <= self.case.target:
                    return


def run_case(case: Case, environments: Path, limit: float, measured: str) -> CaseResult:
    """Everybody on one problem, we first; all gaps by the best dual value of the race."""
    arrays = make_arrays(case.spec)
    judge = make_judge(case.spec, arrays, make_betas(case.spec, arrays))
    course = _Course(case, judge, environments, limit)
    found = {name: course.run(name) for name in (OURS, *case.needs)}
    runs = tuple(
        Run(name, tuple(_judged(solve, judge) for solve in solves), ending, message)
        for name, (solves, ending, message) in found.items()
    )
    return CaseResult(
        case.name,
        case.spec.label,
        case.spec.as_dict(),
        case.target,
        dict(case.needs),
        case.at_most,
        limit,
        measured,
        runs,
    )


def _judged(solve: _Solve, judge: Judge) -> Rung:
    gap = judge.gap(solve.primals)
    return Rung(solve.tolerance, solve.cpu, solve.wall, gap if gap < float("inf") else None, solve.claimed)
