"""Layerwise training over ranks: seconds per epoch of every stage on one rank and on two, the same images and batches.

    python benchmarks/layerwise_ranks.py [--quick] [--out benchmarks/results]

Random images of the size of Fashion-MNIST, three stages with downsampling before the first and the third, batches
of 128, once augmented (batches are shared evenly) and once not (every rank keeps the channels of its own images).
Every line is a torchrun of its own with one thread per rank. The shortest epoch of a stage counts, by the clock,
and beside it the shortest by rank 0's processor, which other processes on the machine hardly change.
"""

import argparse
import json
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bidual.distributed import Ranks
from bidual.runtime.files import write_atomically
from bidual.training.layerwise import EpochRecord, LayerwiseTrainer, Settings
from under_torchrun import answer, launch

_CLASSES, _RATE = 10, 0.1


@dataclass(frozen=True)
class Job:
    """What a torchrun does."""

    ranks: int
    augmented: bool
    gates: int = 32
    images: int = 2048
    epochs: int = 6

    @property
    def settings(self) -> Settings:
        return Settings(
            gates=self.gates,
            downsample=(True, False, True),
            epochs=self.epochs,
            rates=(_RATE,) * 3,
            crop=1 if self.augmented else 0,
            flip=self.augmented,
        )


def work(job: Job, ranks: Ranks) -> dict[str, Any]:
    """A rank's part of a job; the result on rank 0."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (job.images, 1, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.randint(_CLASSES, (job.images,), generator=generator)
    marks: list[tuple[int, float]] = [(0, time.process_time())]

    def note(record: EpochRecord) -> None:
        marks.append((record.stage, time.process_time()))

    done = LayerwiseTrainer(job.settings, images, labels, _CLASSES, on_epoch=note, ranks=ranks).run()
    peaks = ranks.collect(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    bytes_sent = [
        gradient_bytes(stage, head) for stage, head in zip(done.network.stages, done.network.heads, strict=True)
    ]
    return {
        **asdict(job),
        "seconds": [min(r.seconds for r in done.history if r.stage == stage) for stage in (1, 2, 3)],
        "processor_seconds": [shortest(marks, stage) for stage in (1, 2, 3)] if ranks.leads else [],
        "gradient_bytes": bytes_sent,
        "steps_per_epoch": -(-job.images // job.settings.batch_size),
        "loss": done.history[-1].loss,
        "peak_gigabytes": peaks,
    }


def shortest(marks: list[tuple[int, float]], stage: int) -> float:
    """The least time between two epochs of a stage, of which the first has the stage's beginning in it."""
    return min(b[1] - a[1] for a, b in pairwise(marks) if b[0] == stage)


def gradient_bytes(*modules: torch.nn.Module) -> int:
    """Of what is trained."""
    return sum(p.numel() * p.element_size() for m in modules for n, p in m.named_parameters() if "gate" not in n)


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"| {'augmented' if found['augmented'] else 'kept'} | {found['ranks']} |"
    if "error" in found:
        return f"{head} {found['error']} |"
    wall, processor = (", ".join(f"{s:.2f}" for s in found[name]) for name in ("seconds", "processor_seconds"))
    peaks = ", ".join(f"{peak:.2f}" for peak in found["peak_gigabytes"])
    return f"{head} {wall} | {processor} | {found['loss']:.5f} | {peaks} |"


def jobs(quick: bool) -> list[Job]:
    sizes = {"gates": 2, "images": 256, "epochs": 1} if quick else {}
    return [Job(ranks, augmented, **sizes) for augmented in (True, False) for ranks in (1, 2)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, help="a folder for layerwise_ranks.json")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        job = Job(**json.loads(options.job))
        answer(lambda ranks: work(job, ranks), options.folder)
        return
    print("| inputs | ranks | seconds per epoch, stages 1, 2, 3 | rank 0's processor | loss | peak GB |")
    print("|" + "---|" * 6)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs(options.quick):
            results.append(launch(__file__, job, Path(folder)))
            print(line(results[-1]), flush=True)
            if options.out:
                write_atomically(options.out / "layerwise_ranks.json", json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
