"""Deep networks, grown stage by stage from convex two-layer or three-layer ones."""

from bidual.layerwise.checkpoint import Checkpoint
from bidual.layerwise.descent import EpochRecord
from bidual.layerwise.settings import Settings
from bidual.layerwise.training import Grown, Growth

__all__ = ["Checkpoint", "EpochRecord", "Grown", "Growth", "Settings"]
