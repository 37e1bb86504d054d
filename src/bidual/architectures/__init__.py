"""Network families. A new one is one file here."""

from bidual.architectures.base import Architecture
from bidual.architectures.mlp import GatedMLP, LinearMLP
from bidual.architectures.relu import ReluMLP

__all__ = ["Architecture", "GatedMLP", "LinearMLP", "ReluMLP"]
