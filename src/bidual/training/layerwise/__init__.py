"""Deep networks, grown stage by stage from convex two-layer or three-layer ones."""

from bidual.training.layerwise.checkpoint import Checkpoint
from bidual.training.layerwise.growth import Grown, Growth
from bidual.training.layerwise.settings import Settings
from bidual.training.layerwise.stage_descent import EpochRecord

__all__ = ["Checkpoint", "EpochRecord", "Grown", "Growth", "Settings"]
