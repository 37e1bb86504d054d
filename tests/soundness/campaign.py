"""The soundness campaign: certificates of many random and adversarial problems, each held against extended precision.

    PYTHONPATH=tests python -m soundness.campaign --problems 20000 --out benchmarks/results

A certificate is unsound if its dual exceeds the objective of any point that anybody found (other solvers, cvxpy, other
certificates of the same problem, the zero network), or if its primal is below the objective of its own point, both
evaluated in extended precision. A bound of a polar is unsound if a neuron exceeds it. What was done is kept in a file,
so that a campaign that was stopped goes on.
"""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bidual.problems.certificate import SoundnessError
from bidual.runtime.files import write_atomically
from soundness.blocks import block_case
from soundness.cases import Case
from soundness.estimators import estimator_case
from soundness.families import norm_case, patches_case, whitened_case
from soundness.foreign import foreign_case
from soundness.midsized import large_blocks_case, large_network_case
from soundness.networks import network_case
from soundness.parallels import cells_case, parallel_case, parallel_polar_case
from soundness.parts import parts_case
from soundness.polar import polar_case
from soundness.stages import stage_case
from soundness.tally import Kept, Tally

CASES: dict[Case, float] = {  # and how often each is drawn
    block_case: 0.24,
    network_case: 0.13,
    polar_case: 0.22,
    parts_case: 0.08,
    foreign_case: 0.06,
    large_blocks_case: 0.05,
    large_network_case: 0.06,
    norm_case: 0.02,
    patches_case: 0.02,
    whitened_case: 0.02,
    parallel_case: 0.02,
    cells_case: 0.02,
    parallel_polar_case: 0.02,
    estimator_case: 0.03,
    stage_case: 0.01,
}
_APART = 1_000_000  # the numbers of a campaign's draws begin at its seed times this: no two campaigns share a draw
_AT_ONCE = 25  # draws of one task; a file is written after each


def draw(seed: int) -> Tally:
    """All that one seed gives."""
    rng, tally, began = np.random.default_rng(seed), Tally(), time.perf_counter()
    case = list(CASES)[int(rng.choice(len(CASES), p=list(CASES.values())))]
    try:
        for issued in case(rng):
            tally.check(issued, seed)
    except SoundnessError as error:  # the package itself found that a certificate is wrong
        tally.unsound.append({"seed": seed, "case": case.__name__, "false": str(error)})
    except Exception as error:  # a crash is a finding, not the end of the campaign
        tally.crashed.append({"seed": seed, "case": case.__name__, "error": f"{type(error).__name__}: {error}"[:300]})
    tally.seconds = time.perf_counter() - began
    return tally


def draws(first: int) -> Tally:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total = Tally()
    for seed in range(first, first + _AT_ONCE):
        total.add(draw(seed))
    return total


def run(kept: Kept, problems: int, seconds: float, workers: int, seed: int) -> None:
    """Until there are so many problems, or no time is left."""
    deadline, following = time.monotonic() + seconds, seed * _APART
    with ProcessPoolExecutor(workers) as pool:
        waiting = {}
        while (kept.total.problems < problems and time.monotonic() < deadline) or waiting:
            while len(waiting) < workers and kept.total.problems < problems and time.monotonic() < deadline:
                if following not in kept.done:
                    waiting[pool.submit(draws, following)] = following
                following += _AT_ONCE
            for future in as_completed(list(waiting)):
                kept.keep(waiting.pop(future), future.result())
                _tell(kept.total)
                break


def _tell(total: Tally) -> None:
    print(
        f"{total.problems} problems, {total.certificates} certificates, {total.bounds} bounds, "
        f"{len(total.unsound)} unsound, {len(total.crashed)} crashed, "
        f"worst slack {total.dual_slack:.1e} (dual) {total.primal_slack:.1e} (primal), {total.seconds:.0f} s",
        flush=True,
    )


def report(total: Tally, seed: int) -> dict[str, Any]:
    """The numbers that are published."""
    story = total.to_json() | {"seed": seed, "cpus": os.cpu_count()}
    for name in ("unsound", "crashed"):
        story[f"number_{name}"] = len(story[name])
        story[name] = story[name][:20]
    return story


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=7200.0, help="stop after so long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="campaigns of other seeds share no problem")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = Kept(given.out / f"soundness-{given.seed}.jsonl")
    run(kept, given.problems, given.seconds, given.workers, given.seed)
    story = report(kept.total, given.seed)
    write_atomically(given.out / "soundness.json", json.dumps(story, indent=1).encode())
    _tell(kept.total)
    total = kept.total
    return 1 if total.unsound or total.crashed or total.problems < given.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
