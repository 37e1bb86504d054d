"""Run by torchrun: contracts, solutions and shards of a problem that is spread over ranks, written down by rank 0.

    torchrun --nproc-per-node 2 agreement.py FOLDER OUT

FOLDER holds ``table.csv`` and ``table.parquet``, see :func:`write_tables`.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bidual.distributed import Ranks, ShardedOperator, run_on_leader, torchrun_ranks
from bidual.distributed.encoding import gathered_targets, is_mixed, mapped_encoder, mixed_columns, shared_encoder
from bidual.distributed.rows import shared_gates
from bidual.distributed.shards import mapped_shard, row_range, table_shard
from bidual.gauges import Nuclear
from bidual.io.tables import guess_task, target_values
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LiftedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.patterns import activations
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers import FISTA, BurerMonteiro, KernelADMM, PrimalDual
from bidual.solvers.plan import solve_auto
from bidual.testing import check_operator
from helpers.no_pickles import forbid_pickles

N, D, P = 61, 3, 7  # rows that two ranks cannot share evenly
SOLVERS = {
    "fista": (FISTA(), 1e-4),
    "primal_dual": (PrimalDual(), 5e-3),
    "burer_monteiro": (BurerMonteiro(), 1e-11),
    "kernel_admm": (KernelADMM("float64"), 1e-8),
    "auto": ("auto", 1e-8),
}
CASES = [(loss, c, solver) for loss, c in (("squared", 2), ("logistic", 1)) for solver in SOLVERS]


def data() -> tuple[torch.Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(N, D, generator=rng, dtype=torch.float64)
    gates = torch.randn(D, P, generator=rng, dtype=torch.float64)
    noise = torch.randn(N, 2, generator=rng, dtype=torch.float64)
    return X, gates, (X @ gates[:, :2]).clamp(min=0) + 0.5 * noise + 3


def plain(rows: slice, c: int) -> GatedOperator:
    X, gates, _ = data()
    return GatedOperator(X[rows], activations(X, gates)[:, rows].contiguous(), c)


def tiled(rows: slice, c: int) -> TiledOperator:
    X, gates, _ = data()
    return TiledOperator(MappedRows(X[rows].numpy()), gates, c, torch.float64, tile_bytes=2000)


def problem(operator: LiftedOperator, loss: str, fraction: float = 0.2) -> Problem:
    """With an intercept; two outputs for squared loss, one for logistic."""
    Y = data()[2][:, : operator.output_shape[1]]
    if loss == "logistic":
        Y = torch.where(Y.mean(0) < Y, 1.0, -1.0).double()
    datafit = Datafit(Squared() if loss == "squared" else Logistic(), Y, None, True)
    whole = Problem(operator, datafit, Nuclear(), 1.0)
    return whole.with_beta(fraction * whole.beta_max)


def solutions(operator: ShardedOperator, c: int) -> Iterator[dict[str, object]]:
    for loss, outputs, name in CASES:
        if outputs != c:
            continue
        solver, tol = SOLVERS[name]
        done = solve_auto(problem(operator, loss), Limits(tol, 2000), solver=solver)
        yield {
            "case": [loss, c, name],
            "Z": done.Z.tolist(),
            "solver": done.solver,
            "gap": done.certificate.relative_gap,
            "holds": done.certificate.recheck(problem(plain(slice(None), c), loss)),
            "holds_in_shards": done.certificate.recheck(problem(operator, loss)),
        }


def limited_by_time(operator: ShardedOperator) -> str:
    return solve_auto(problem(operator, "squared"), Limits(1e-15, 10**6, max_time=0.05), solver="fista").status.name


def contract(operator: ShardedOperator) -> str:
    check_operator(operator, torch.Generator().manual_seed(1))
    return type(operator).__name__


def shards(ranks: Ranks, folder: Path) -> dict[str, object]:
    """What all ranks read together."""
    found: dict[str, object] = {}
    for name in ("table.csv", "table.parquet"):
        frame = table_shard(folder / name, ranks)
        mixed = mixed_columns(frame, ranks)
        if mixed:
            frame = table_shard(folder / name, ranks, mixed)
        parts = [
            pd.read_json(io.StringIO(text), dtype=False, convert_axes=False)
            for text in ranks.collect(frame.to_json(double_precision=15))
        ]
        found[name] = {
            "mixed": mixed,
            "frame": pd.concat(parts, ignore_index=True).to_json(double_precision=15),
            "sizes": [len(part) for part in parts],
            "encoder": shared_encoder(frame, ranks).to_json(),
        }
    rows = mapped_shard(folder / "array.npy", ranks)
    found["array.npy"] = np.concatenate(ranks.collect(np.array(rows.array).tolist())).tolist()
    found["array encoder"] = mapped_encoder(rows, [0, 2], ranks, tile=7).to_json()
    X = data()[0][row_range(N, ranks)]
    found["gates"] = shared_gates(lambda: X.split(5), 30, 7, ranks, bias=True).tolist()
    return found


def targets(ranks: Ranks) -> list[list[object]]:
    """Target columns of all kinds, of which every rank has its own rows."""
    found = []
    for column in target_columns():
        mine = column.iloc[row_range(len(column), ranks)]
        mine = mine.astype(np.int64) if column.name == "whole on one rank" and ranks.rank + 1 < ranks.size else mine
        whole = gathered_targets(mine, ranks)
        if whole is not None:
            task = guess_task(whole)
            found.append([task, target_values(whole, task).tolist()])
    lost = pd.Series([1.0, None, 2.0], name="lost").iloc[row_range(3, ranks)]
    try:
        gathered_targets(lost, ranks)
    except ValueError as error:
        found.append([type(error).__name__, str(error)])
    texts = pd.Series(["1", "2"] if ranks.leads else ["x", "y"])
    found.append(["mixed", is_mixed(texts.map(int) if ranks.leads else texts, ranks)])
    found.append(["mixed", is_mixed(pd.Series([1, 2] if ranks.leads else [0.5, 1]), ranks)])
    return found


def target_columns() -> list[pd.Series]:
    return [
        pd.Series([3, 1, 2, 2, 1], name="whole"),
        pd.Series([0.5, 1.0, -2.0, np.pi, 1e-300], name="real"),
        pd.Series([1.0, 2.0, 0.5, 0.25, 4.0], name="whole on one rank"),
        pd.Series([True, False, True, True, False], name="truth"),
        pd.Series(["b", "a", "a, or \n b", "ü", "b"], name="texts"),
        pd.Series(["b", "a", "c", "c", "b"], dtype="category", name="category"),
        pd.Series([2, 1, 2, 2, 1], dtype="category", name="numbered category"),
        pd.Series([2, 1, 2, 2, 1], dtype="Int64", name="nullable"),
    ]


def refused(operator: ShardedOperator) -> None:
    raise ValueError("refused by rank 0")


def endings(ranks: Ranks, local: LiftedOperator) -> dict[str, list[str]]:
    """How ranks hear that rank 0 has failed, that one of them has, and that the others have gone."""

    def ending(action: Callable[[], object]) -> str:
        try:
            action()
        except (ValueError, OSError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    after = run_on_leader(ranks, local, lambda operator: operator)
    late = ending(lambda: None if after is None else after.forward(after.zeros()))
    failing = ending(lambda: ranks.together(lambda: row_range(1, Ranks(0, 1 + ranks.rank))))
    return {
        "rank 0": ranks.collect(ending(lambda: run_on_leader(ranks, local, refused))),
        "one of them": ranks.collect(failing),
        "late": ranks.collect(late),
    }


def main(ranks: Ranks, folder: Path, out: Path) -> None:
    rows = row_range(N, ranks)
    found = {"contract": [], "solutions": [], "shards": shards(ranks, folder)}
    for c in (1, 2):
        for make in (plain, tiled):
            found["contract"].append(run_on_leader(ranks, make(rows, c), contract))
        found["solutions"] += (
            run_on_leader(ranks, plain(rows, c), lambda operator, c=c: list(solutions(operator, c))) or []
        )
    found["endings"] = endings(ranks, plain(rows, 1))
    found["targets"] = targets(ranks)
    found["limited"] = run_on_leader(ranks, plain(rows, 1), limited_by_time)
    if ranks.leads:
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    forbid_pickles()
    with torchrun_ranks() as these:
        main(these, Path(sys.argv[1]), Path(sys.argv[2]))
