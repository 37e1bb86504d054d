"""One fit over many processes: rows are split, rank 0 leads, plain torchrun starts it."""

from bidual.operators.sharded import ShardedOperator, run_on_leader
from bidual.runtime.rank_errors import LostRankError
from bidual.runtime.ranks import Ranks
from bidual.runtime.torchrun import torchrun_ranks

__all__ = ["LostRankError", "Ranks", "ShardedOperator", "run_on_leader", "torchrun_ranks"]
