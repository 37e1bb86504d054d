"""One fit over many processes: rows are split, rank 0 leads, plain torchrun starts it."""

from bidual.distributed.errors import LostRankError
from bidual.distributed.operator import ShardedOperator, led
from bidual.distributed.ranks import Ranks
from bidual.distributed.torchrun import torchrun_ranks

__all__ = ["LostRankError", "Ranks", "ShardedOperator", "led", "torchrun_ranks"]
