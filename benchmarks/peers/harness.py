"""What all workers share: read a task, warm up, solve once for every tolerance that is asked for.

A worker is ``python worker_NAME.py FOLDER``. The folder holds ``problem.npz`` and ``task.json``. Tolerances come as
lines on standard input; events leave as lines of JSON on standard output (what libraries print goes to standard error),
and the weights of rung K as ``rung_K.npz``. NumPy only.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from problems import Array, Arrays, Spec, make_arrays, make_betas

Answer = Mapping[str, Any]
_REPEATS, _SHORT = 3, 1.0  # a rung below a second is solved three times, for all alike; the least time counts


@dataclass(frozen=True)
class Task:
    """A problem with the weight decays to solve for, and which of a worker's methods to use."""

    spec: Spec
    arrays: Arrays
    betas: tuple[float, ...]
    method: str

    @property
    def beta(self) -> float:
        """The only weight decay of a task that is no path."""
        (beta,) = self.betas
        return beta


Prepare = Callable[[Task, float], Callable[[], Answer]]


def main(prepare: Prepare) -> None:
    """Run a worker. ``prepare(task, tolerance)`` is not timed, what it returns is: one fresh solve."""
    folder, emit = Path(sys.argv[1]), _events()
    settings = json.loads((folder / "task.json").read_text())
    task = _read_task(folder, settings)
    prepare(_tiny(task), settings["warm_up"])()
    emit(event="ready")
    for index, line in enumerate(sys.stdin):
        wall, cpu, answer = _best_of(prepare, task, float(line))
        np.savez(folder / f"rung_{index}.npz", **answer)
        emit(event="rung", wall=wall, cpu=cpu, file=f"rung_{index}.npz")


def _events() -> Callable[..., None]:
    """A writer of events on standard output, which is from here on closed to everybody else."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def emit(**event: Any) -> None:
        print(json.dumps(event), file=stream, flush=True)

    return emit


def _best_of(prepare: Prepare, task: Task, tolerance: float) -> tuple[float, float, Answer]:
    walls, cpus, answer = [], [], {}
    while not walls or (len(walls) < _REPEATS and sum(walls) < _SHORT):
        solve = prepare(task, tolerance)
        wall, cpu = time.perf_counter(), time.process_time()
        answer = solve()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus), answer


def write_task(folder: Path, spec: Spec, arrays: Arrays, betas: tuple[float, ...], **settings: Any) -> None:
    """The reader's side: lay out a folder for a worker."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "problem.npz", X=arrays.X, Y=arrays.Y, mask=arrays.mask, gates=arrays.gates)
    (folder / "task.json").write_text(json.dumps({"spec": spec.as_dict(), "betas": betas, **settings}))


def _read_task(folder: Path, settings: dict[str, Any]) -> Task:
    with np.load(folder / "problem.npz") as stored:
        arrays = Arrays(*(stored[name] for name in Arrays._fields))
    return Task(Spec(**settings["spec"]), arrays, tuple(settings["betas"]), settings["method"])


def _tiny(task: Task) -> Task:
    spec = task.spec.tiny()
    arrays = make_arrays(spec)
    return Task(spec, arrays, make_betas(spec, arrays)[-len(task.betas) :], task.method)


def each_output(Y: Array, solve: Callable[[Array], Array], shape: tuple[int, int]) -> Array:
    """Z (1, P, d, c) from one problem per output, for libraries without vector outputs; their times add up."""
    return np.stack([solve(np.ascontiguousarray(y)).reshape(shape) for y in Y.T], axis=-1)[None]


def network(positive: Array, negative: Array) -> Answer:
    """A ReLU network from the weights w_p and v_p of CP eq. (9): a neuron for each."""
    neurons = np.vstack([positive, negative])
    signs = np.concatenate([np.ones(len(positive)), -np.ones(len(negative))])
    return {"neurons": neurons, "signs": signs}
