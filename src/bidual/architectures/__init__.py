"""Network families. A new one is one file here."""

from bidual.architectures.attention import GatedAttention, LinearAttention, ReluAttention
from bidual.architectures.base import Architecture
from bidual.architectures.cnn import GatedCNN, LinearCNN, ReluCNN
from bidual.architectures.mlp import GatedMLP, LinearMLP
from bidual.architectures.relu import ReluMLP

__all__ = [
    "Architecture",
    "GatedAttention",
    "GatedCNN",
    "GatedMLP",
    "LinearAttention",
    "LinearCNN",
    "LinearMLP",
    "ReluAttention",
    "ReluCNN",
    "ReluMLP",
]
