"""The ordinary torch modules that lifted solutions decode to. They know nothing of convex programs."""

from bidual.networks.attention import (
    AttentionNetwork,
    GatedAttentionNetwork,
    LinearAttentionNetwork,
    ReluAttentionNetwork,
)
from bidual.networks.base import RebuildableModule
from bidual.networks.cnn import ConvNetwork, GatedConvNetwork, LinearConvNetwork, ReluConvNetwork
from bidual.networks.gated_parallel import GatedParallelNetwork
from bidual.networks.layerwise import LayerwiseNetwork
from bidual.networks.mlp import GatedNetwork, LinearNetwork, ReluNetwork, TwoLayerNetwork
from bidual.networks.parallel import ParallelNetwork

NETWORKS: dict[str, type[RebuildableModule]] = {
    cls.kind: cls
    for cls in (
        LinearNetwork,
        ReluNetwork,
        GatedNetwork,
        LinearConvNetwork,
        ReluConvNetwork,
        GatedConvNetwork,
        LinearAttentionNetwork,
        ReluAttentionNetwork,
        GatedAttentionNetwork,
        ParallelNetwork,
        GatedParallelNetwork,
        LayerwiseNetwork,
    )
}

__all__ = [
    "NETWORKS",
    "AttentionNetwork",
    "ConvNetwork",
    "GatedAttentionNetwork",
    "GatedConvNetwork",
    "GatedNetwork",
    "GatedParallelNetwork",
    "LayerwiseNetwork",
    "LinearAttentionNetwork",
    "LinearConvNetwork",
    "LinearNetwork",
    "ParallelNetwork",
    "RebuildableModule",
    "ReluAttentionNetwork",
    "ReluConvNetwork",
    "ReluNetwork",
    "TwoLayerNetwork",
]
