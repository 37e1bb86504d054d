"""Proof files with something changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from bidual.cli.bidual_check import verdict

Change = Callable[[dict[str, Tensor]], Any]


def changed(path: Path, change: Change) -> tuple[int, str]:
    """The verdict after a change of the tables."""
    with safetensors.safe_open(path, framework="pt") as file:
        metadata, tables = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tables)
    other = path.with_name("changed")
    other.write_bytes(safetensors.torch.save(tables, metadata))
    return verdict(other)


def times(name: str, factor: float) -> Change:
    """The largest number of a table times a factor."""

    def change(tables: dict[str, Tensor]) -> None:
        entries = tables[name].flatten()
        entries[int(entries.abs().argmax())] *= factor
        tables[name] = entries.reshape(tables[name].shape)

    return change
