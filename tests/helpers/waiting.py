"""Run by torchrun: in a phase that is named, rank 0 is busy for longer than it may be silent, then writes a file, and
does nothing for a while.

torchrun --nproc-per-node 2 waiting.py PHASE FILE BUSY SECONDS
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bidual.distributed import Ranks, ShardedOperator, run_on_leader, torchrun_ranks
from bidual.operators import LinearOperator
from bidual.training.layerwise import LayerwiseTrainer, Settings

Think = Callable[..., None]


def reading(ranks: Ranks, think: Think) -> None:
    if ranks.leads:
        think()
    assert ranks.collect(ranks.rank) == list(range(ranks.size))


def solving(ranks: Ranks, think: Think) -> None:
    def work(operator: ShardedOperator) -> float:
        think()
        return float(operator.forward(torch.ones(1, 1, 1, dtype=torch.float64)).sum())

    found = run_on_leader(ranks, LinearOperator(torch.ones(3, 1, dtype=torch.float64), 1), work)
    assert found in (3.0 * ranks.size, None)


def training(ranks: Ranks, think: Think) -> None:
    """Rank 0 thinks in the callback after an epoch, while the others are at the door of the next."""
    images, labels = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    settings = Settings(gates=2, downsample=(False,), epochs=2, batch_size=4, rates=(0.1,), crop=0)
    done = LayerwiseTrainer(settings, images, labels, 2, on_epoch=think, ranks=ranks).run()
    assert len(done.history) == 2


PHASES = {work.__name__: work for work in (reading, solving, training)}


def main(ranks: Ranks, phase: str, file: Path, busy: float, seconds: float) -> None:
    def think(*_: object) -> None:
        time.sleep(busy)
        file.touch()
        time.sleep(seconds)

    PHASES[phase](ranks, think)


if __name__ == "__main__":
    try:
        with torchrun_ranks() as these:
            main(these, sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:]))
    except OSError as error:
        sys.exit(str(error))
