"""Solvers against the floor: their floating-point operations at the rate of a matrix product (GEMM) of the same run.

    python benchmarks/floor.py [--quick] [--out benchmarks/results]

First the gated product, forward and adjoint, in both precisions: operations, bytes moved, and its share of two rates,
that of a large square GEMM (what the machine can do; the target is half of it) and that of plain GEMMs of the same
shapes. Then a step of each solver: the operations it needs by formula, at the square rate of their precision, against
the seconds it takes. One thread; everything that is compared is timed in turn, and the shortest time of each counts.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.runtime.files import write_atomically
from bidual.runtime.threads import one_thread
from bidual.solvers import EtaNewton, KernelADMM, QInteriorPoint
from bidual.solvers.driver import Solver, solve
from flops import Work, admm_work, newton_work, product_bytes, product_flops, q_work
from gated_problems import Case, make_problem

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_TARGET = 0.5  # of the rate of the square GEMM
_TIMED_TOGETHER = 5  # steps
_FLOPS_TOGETHER, _FEW_TOGETHER = 2e8, 2e6  # operations of small products, which are timed together; few if quick
_WARM = 85  # steps of ADMM: its penalty has settled, Anderson's memory is full
_TURNS = 8  # of steps: ADMM's penalty may change again at step 150, which factors its kernel
_HAND_OVER = 2e-4  # the gap at which Newton's method takes over
_PREFACE = (
    "One thread, the shortest of many interleaved runs. The product is forward and adjoint; its target is half the "
    "rate of the square GEMM. Rates are Gflop/s. The floor of a step is its operations at the square rate of their "
    "precision. `python benchmarks/floor.py --out benchmarks/results`"
)
LARGE = (Case(500, 20, 100, 0.01), Case(2000, 50, 500, 0.01), Case(2000, 50, 500, 0.01, 5))
QUICK = (Case(60, 4, 10, 0.01), Case(60, 4, 10, 0.01, 2))
SPIRAL = Case(150, 2, 73, 0.01, 3, "nuclear")  # of the size of BM 4.1


@dataclass(frozen=True)
class Product:
    """A line of the first table; rates are operations per second."""

    case: Case
    dtype: str
    flops: float
    bytes: float
    seconds: float
    square_rate: float
    shape_rate: float

    @property
    def share(self) -> float:
        return self.flops / self.seconds / self.square_rate

    @property
    def shape_share(self) -> float:
        return self.flops / self.seconds / self.shape_rate


@dataclass(frozen=True)
class Step:
    """A line of the second table; ``active`` blocks are nonzero at the point before the step."""

    solver: str
    case: Case
    active: int
    work: Work
    seconds: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.floor


def shortest(runs: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Seconds of the shortest of several interleaved runs, after one that is not counted."""
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(turns + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if turn:
                best[name] = min(best[name], time.perf_counter() - began)
    return best


def repeated(run: Callable[[], object], times: int) -> Callable[[], object]:
    """Several runs as one: the large GEMM before has emptied the caches, which solvers find filled."""
    return lambda: [run() for _ in range(times)]


def square_gemm(side: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    one, other = torch.randn(2, side, side, dtype=dtype)
    return lambda: one @ other


def product(case: Case, name: str, side: int, turns: int, together: float = _FLOPS_TOGETHER) -> Product:
    """Forward plus adjoint, between a square GEMM and GEMMs of the same shapes."""
    dtype = _DTYPES[name]
    operator = make_problem(case).operator.to(dtype)
    Z, V = torch.randn(operator.block_shape, dtype=dtype), torch.randn(operator.output_shape, dtype=dtype)
    D, M = torch.randn(case.n, case.patterns, dtype=dtype), torch.randn(case.n, case.d * case.c, dtype=dtype)
    flops = product_flops(case)
    times = max(round(together / flops), 1)
    runs = {
        "square": square_gemm(side, dtype),
        "shape": repeated(lambda: (D @ Z.flatten(1), D.T @ M), times),
        "gated": repeated(lambda: (operator.forward(Z), operator.adjoint(V)), times),
    }
    found = shortest(runs, turns)
    rates = 2 * side**3 / found["square"], flops * times / found["shape"]
    return Product(case, name, flops, product_bytes(case, dtype.itemsize), found["gated"] / times, *rates)


def admm_states(problem: Problem, count: int) -> list[Any]:
    """One state that goes on."""
    solver = KernelADMM("float32")
    state = solver.init(problem, None, None)
    for _ in range(_WARM):
        state = solver.step(problem, state)
    if solver.finished(state):
        raise RuntimeError(f"{solver.name} gave up before its steps could be timed; choose another case.")
    return [state] * count


def newton_states(problem: Problem, count: int) -> list[Any]:
    """The first step after ADMM hands over, as ``solve_auto`` runs it."""
    begun = solve(problem, KernelADMM("float32"), Limits(_HAND_OVER, 400))
    return [EtaNewton().init(problem, begun.Z, begun.certificate.dual_point) for _ in range(count)]


def q_states(problem: Problem, count: int) -> list[Any]:
    return [QInteriorPoint().init(problem, None, None) for _ in range(count)]


@dataclass(frozen=True)
class Task:
    """A solver, the work of its step, states to begin from, and how many steps are timed together."""

    solver: Solver
    work: Callable[[Case, int], Work]
    states: Callable[[Problem, int], list[Any]]
    together: int = _TIMED_TOGETHER


ADMM, NEWTON = Task(KernelADMM("float32"), admm_work, admm_states), Task(EtaNewton(), newton_work, newton_states, 1)
Q = Task(QInteriorPoint(), q_work, q_states)


def step(task: Task, case: Case, side: int, turns: int) -> Step:
    """Steps of a solver between square GEMMs of both precisions."""
    problem = make_problem(case)
    states = task.states(problem, turns + 1)
    Z, rest = task.solver.point(problem, states[0]), iter(states)
    active = int((Z.any(1) if task is NEWTON else Z.flatten(1).any(1)).sum())

    def run() -> None:
        state = next(rest)
        for _ in range(task.together):
            state = task.solver.step(problem, state)

    gemms = {name: square_gemm(side, dtype) for name, dtype in _DTYPES.items()}
    found, work = shortest({**gemms, "steps": run}, turns), task.work(case, active)
    floor = (work.single * found["float32"] + work.double * found["float64"]) / (2 * side**3)
    return Step(task.solver.name, case, active, work, found["steps"] / task.together, floor)


def size(case: Case) -> str:
    return f"{case.n} | {case.d} | {case.patterns} | {case.c}"


def product_table(rows: Sequence[Product]) -> Iterator[str]:
    yield "| n | d | P | c | precision | Mflop | MB moved | ms | Gflop/s | square GEMM | same shapes | share | met |"
    yield "|" + "---|" * 13
    for row in rows:
        rates = [f"{rate / 1e9:.1f}" for rate in (row.flops / row.seconds, row.square_rate, row.shape_rate)]
        numbers = [f"{row.flops / 1e6:.4g}", f"{row.bytes / 1e6:.3g}", f"{1e3 * row.seconds:.3f}", *rates]
        shares = f"{row.share:.0%} of square, {row.shape_share:.0%} of same shapes"
        met = "yes" if row.share >= _TARGET else "no"
        yield f"| {size(row.case)} | {row.dtype} | {' | '.join(numbers)} | {shares} | {met} |"


def step_table(rows: Sequence[Step]) -> Iterator[str]:
    yield "| solver | n | d | P | c | active | Mflop float32 | Mflop float64 | ms a step | floor, ms | ratio |"
    yield "|" + "---|" * 11
    for row in rows:
        flops = f"{row.work.single / 1e6:.4g} | {row.work.double / 1e6:.4g}"
        times = f"{1e3 * row.seconds:.2f} | {1e3 * row.floor:.3g} | {row.ratio:.1f}"
        yield f"| {row.solver} | {size(row.case)} | {row.active} | {flops} | {times} |"


def as_json(products: Sequence[Product], steps: Sequence[Step]) -> str:
    """Both tables; shares and ratios are stated, too."""
    first = [{**asdict(row), "share": row.share, "shape_share": row.shape_share} for row in products]
    return json.dumps({"products": first, "steps": [{**asdict(row), "ratio": row.ratio} for row in steps]}, indent=1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few turns")
    parser.add_argument("--out", type=Path, help="a folder for floor.json and floor.md")
    options = parser.parse_args(arguments)
    cases, side, turns, together = (
        (QUICK, 128, 2, _FEW_TOGETHER) if options.quick else (LARGE, 1024, 40, _FLOPS_TOGETHER)
    )
    tasks = [(task, case) for task in (ADMM, NEWTON) for case in cases] + [(Q, SPIRAL)]
    with one_thread():
        products = [product(case, name, side, turns, together) for case in cases for name in _DTYPES]
        steps = [step(task, case, side, min(turns, _TURNS)) for task, case in tasks]
    text = "\n".join([*product_table(products), "", *step_table(steps), ""])
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out / "floor.json", as_json(products, steps).encode())
        write_atomically(options.out / "floor.md", f"# Against the floor\n\n{_PREFACE}\n\n{text}".encode())


if __name__ == "__main__":
    main()
