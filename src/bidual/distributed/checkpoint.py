"""The best certified point of a run that may be killed."""

import json
import os
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Self

import safetensors
import safetensors.torch
from torch import Tensor

from bidual.problems.certificate import Certificate
from bidual.runtime.files import write_atomically
from bidual.runtime.json_text import parse_json

_FORMAT, _KEY = 1, "bidual-distributed"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A point and a dual point to start from. Both are judged anew by whoever does, so nothing here is trusted.

    Attributes:
        configuration: what the run was about; a checkpoint of another one is refused.
        point, dual_point: of the best certificate so far.
        relative_gap: what that certificate said.
    """

    configuration: dict[str, Any]
    point: Tensor
    dual_point: Tensor
    relative_gap: float

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file; whoever is killed meanwhile leaves the old one."""
        story = {"format": _FORMAT, "configuration": self.configuration, "relative_gap": self.relative_gap}
        tensors = {"point": self.point.cpu().contiguous(), "dual_point": self.dual_point.cpu().contiguous()}
        write_atomically(path, safetensors.torch.save(tensors, metadata={_KEY: json.dumps(story)}))

    @classmethod
    def read(cls, path: str | os.PathLike[str], configuration: dict[str, Any]) -> Self | None:
        """What is in the file, if it is about this configuration; None if there is no file."""
        if not Path(path).exists():
            return None
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                story = parse_json((file.metadata() or {})[_KEY])
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            known = (story["format"], story["configuration"], float(story["relative_gap"]))
            found = cls(known[1], tensors["point"], tensors["dual_point"], known[2])
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{path} is no checkpoint of a distributed fit, or is damaged; delete it.") from error
        if known[0] != _FORMAT or found.configuration != configuration:
            raise ValueError(f"the checkpoint {path} is of another run; delete it, or give another name.")
        return found


class CheckpointWriter:
    """Writes the best certificate to a file as it comes: when its gap has halved, or after ``every`` seconds."""

    def __init__(self, path: str | os.PathLike[str], configuration: dict[str, Any], every: float = 5.0) -> None:
        self.path, self.configuration, self.every = path, configuration, every
        self.gap, self.last = inf, -inf

    def __call__(self, certificate: Certificate) -> None:
        gap = certificate.relative_gap
        if gap > self.gap / 2 and time.monotonic() - self.last < self.every:
            return
        Checkpoint(self.configuration, certificate.point, certificate.dual_point, gap).write(self.path)
        self.gap, self.last = gap, time.monotonic()
