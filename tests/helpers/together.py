"""Run by torchrun: networks that ranks grow together, each written by rank 0 as NAME.safetensors.

    torchrun --nproc-per-node 2 together.py FOLDER

In float64, so that what ranks round differently is far below what a wrong share would do; see :func:`in_double`.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from bidual import LayerwiseCNNClassifier
from bidual.distributed import Ranks, torchrun_ranks
from bidual.training.layerwise import Checkpoint, EpochRecord, LayerwiseResult, LayerwiseTrainer, inputs
from bidual.training.layerwise import trainer as training
from bidual.training.layerwise.checkpoint import TENSORS
from helpers.no_pickles import forbid_pickles
from helpers.small_images import bars, settings

N = 65  # four batches of 16 and one of a single image, of which only one rank has a share
CASES = {
    "kept": {},
    "augmented": {"crop": 1, "flip": True},
    "rates": {"rates": None, "trial": 7},
    "units": {"units": 2, "momentum": 0.0},
}


def in_double(patch: Callable[[object, str, object], None]) -> None:
    """Networks and images in float64, by a function like ``setattr``."""
    single = training._State._network
    patch(training._State, "_network", lambda self, count: single(self, count).double())
    for room in (training, inputs):
        patch(room, "as_input", lambda images, device: images.to(device, torch.float64))


def grown(case: str, ranks: Ranks) -> LayerwiseResult:
    return LayerwiseTrainer(settings(**CASES[case]), *bars(N), 3, ranks=ranks).run()


def resumed(ranks: Ranks, folder: Path) -> bool:
    """Whether a training that goes on after the first epoch of stage two ends bit for bit the same; rank 0 knows."""

    def keep(record: EpochRecord) -> None:
        if (record.stage, record.epoch) == (2, 1):
            shutil.copy(folder / "steps" / TENSORS, folder)

    (folder / "steps").mkdir(exist_ok=True)
    trainer = LayerwiseTrainer(settings(crop=1), *bars(N), 3, folder=folder / "steps", on_epoch=keep, ranks=ranks)
    whole = trainer.run()
    told = ranks.broadcast_bytes(Checkpoint.read(folder).to_bytes() if ranks.leads else None)
    again = trainer.watched(None, None).run(Checkpoint.from_bytes(told))
    return digest(whole) == digest(again)


def digest(grown: LayerwiseResult) -> str:
    """Of all numbers of a network."""
    tensors = grown.network.state_dict().values()
    return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()


def refusal(ranks: Ranks, **changes: object) -> str:
    """What an estimator says, of images that rank 1 may have others of."""
    other = int(ranks.rank == 1 and changes.pop("other", 0))
    changes.pop("other", None)
    try:
        LayerwiseCNNClassifier(n_gates=2, epochs=1, **changes).fit(*bars(N, seed=other), ranks)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def estimated(ranks: Ranks) -> list[object]:
    """What every rank's estimator has: its network, and its certificates, which are rank 0's."""
    model = LayerwiseCNNClassifier(
        stages=2, n_gates=2, epochs=1, learning_rate=0.1, random_state=None, certificate_samples=20
    )
    model.fit(*bars(N), ranks)
    weights = torch.cat([p.detach().flatten() for p in model.module_.parameters()])
    return [float(weights.double().sum()), [c.relative_gap for c in model.certificates_]]


def tensors(grown: LayerwiseResult) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in grown.network.state_dict().items()}


def main(ranks: Ranks, folder: Path) -> None:
    found: dict[str, object] = {"estimated": ranks.collect(estimated(ranks))}
    found["refusals"] = ranks.collect([refusal(ranks, batch_size=1), refusal(ranks, other=1)])
    in_double(setattr)
    for case in CASES:
        done = grown(case, ranks)
        found[case] = {
            "digests": ranks.collect(digest(done)),
            "history": [astuple(record) for record in done.history],
            "rates": done.rates,
        }
        if ranks.leads:
            save_file(tensors(done), folder / f"{case}.safetensors")
    found["resumed"] = resumed(ranks, folder)
    if ranks.leads:
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    forbid_pickles()
    with torchrun_ranks() as these:
        main(these, Path(sys.argv[1]))
