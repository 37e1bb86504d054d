"""The ordinary torch modules that lifted solutions decode to. They know nothing of convex programs."""

from bidual.architectures.modules.attention import GatedAttentionNetwork, LinearAttentionNetwork, ReluAttentionNetwork
from bidual.architectures.modules.base import RebuildableModule
from bidual.architectures.modules.cnn import GatedConvNetwork, LinearConvNetwork, ReluConvNetwork
from bidual.architectures.modules.layerwise import LayerwiseNetwork
from bidual.architectures.modules.mlp import GatedNetwork, LinearNetwork, ReluNetwork
from bidual.architectures.modules.parallel import GatedParallelNetwork, ParallelNetwork
from bidual.runtime.registry import Registry

NETWORKS: Registry[RebuildableModule] = Registry(RebuildableModule, "network", "kind")

__all__ = [
    "NETWORKS",
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
]
