"""One fit over many processes, started by torchrun: rows are split over ranks, and rank 0 runs the solver."""

from bidual.operators.sharded import ShardedOperator, run_on_leader
from bidual.runtime.rank_errors import LostRankError
from bidual.runtime.ranks import Ranks
from bidual.runtime.torchrun import torchrun_ranks

__all__ = ["LostRankError", "Ranks", "ShardedOperator", "run_on_leader", "torchrun_ranks"]
