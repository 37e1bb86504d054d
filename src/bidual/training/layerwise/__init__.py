"""Deep networks, trained stage by stage; every stage is a convex two-layer or three-layer network."""

from bidual.training.layerwise.checkpoint import Checkpoint, EpochRecord, Settings
from bidual.training.layerwise.trainer import LayerwiseResult, LayerwiseTrainer

__all__ = ["Checkpoint", "EpochRecord", "LayerwiseResult", "LayerwiseTrainer", "Settings"]
