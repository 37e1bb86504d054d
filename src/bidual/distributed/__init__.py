"""One fit over many processes: rows are split, rank 0 leads, plain torchrun starts it."""

from bidual.operators.sharded import ShardedOperator, led
from bidual.runtime.rank_errors import LostRankError
from bidual.runtime.ranks import Ranks
from bidual.runtime.torchrun import torchrun_ranks

__all__ = ["LostRankError", "Ranks", "ShardedOperator", "led", "torchrun_ranks"]
