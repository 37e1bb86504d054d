"""Deep networks, trained stage by stage; every stage is a convex two-layer or three-layer network."""

from bidual.training.layerwise.checkpoint import Checkpoint
from bidual.training.layerwise.settings import Settings
from bidual.training.layerwise.stage_descent import EpochRecord
from bidual.training.layerwise.trainer import LayerwiseResult, LayerwiseTrainer

__all__ = ["Checkpoint", "EpochRecord", "LayerwiseResult", "LayerwiseTrainer", "Settings"]
