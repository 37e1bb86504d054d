"""A training that kills itself with SIGKILL in the middle of an epoch of stage two: kill_me.py FOLDER."""

import os
import signal
import sys
from pathlib import Path

import torch

from bidual.training.layerwise import LayerwiseTrainer
from bidual.training.layerwise.inputs import FreshInputs
from helpers.small_images import bars, settings

torch.set_num_threads(1)
images, labels = bars()
whole = FreshInputs.batch
seen = 0


def batch(self: FreshInputs, rows: torch.Tensor, generator: torch.Generator) -> object:
    global seen
    seen += len(self.stage.hidden.weight[0]) > 2  # batches of stages after the first: their inputs are downsampled
    if seen == 7:  # four batches an epoch: the second epoch of stage two
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, rows, generator)


FreshInputs.batch = batch  # type: ignore[method-assign]
LayerwiseTrainer(settings(crop=1), images, labels, 3, folder=Path(sys.argv[1])).run()
