"""Network families. A new one is one class with a name and the module it decodes to, here or anywhere else."""

from bidual.architectures.attention import GatedAttention, LinearAttention, ReluAttention
from bidual.architectures.base import Architecture
from bidual.architectures.cnn import GatedCNN, LinearCNN, ReluCNN
from bidual.architectures.gated_parallel import GatedParallel
from bidual.architectures.mlp import GatedMLP, LinearMLP, ReluMLP
from bidual.architectures.parallel import ParallelMLP
from bidual.runtime.registry import Registry

ARCHITECTURES: Registry[Architecture] = Registry(Architecture, "architecture")

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
