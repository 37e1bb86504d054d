"""Network families. A new one is one file here."""

from bidual.architectures.attention import GatedAttention, LinearAttention, ReluAttention
from bidual.architectures.base import Architecture
from bidual.architectures.cnn import GatedCNN, LinearCNN, ReluCNN
from bidual.architectures.gated_parallel import GatedParallel
from bidual.architectures.mlp import GatedMLP, LinearMLP
from bidual.architectures.parallel import ParallelMLP
from bidual.architectures.relu import ReluMLP

ARCHITECTURES: dict[str, type[Architecture]] = {
    cls.name: cls
    for cls in (
        LinearMLP,
        GatedMLP,
        ReluMLP,
        LinearCNN,
        GatedCNN,
        ReluCNN,
        LinearAttention,
        GatedAttention,
        ReluAttention,
        ParallelMLP,
        GatedParallel,
    )
}

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "GatedAttention",
    "GatedCNN",
    "GatedMLP",
    "GatedParallel",
    "LinearAttention",
    "LinearCNN",
    "LinearMLP",
    "ParallelMLP",
    "ReluAttention",
    "ReluCNN",
    "ReluMLP",
]
