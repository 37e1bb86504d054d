"""Where one algorithm overtakes another on an ordinary machine: one table, measured by ``benchmarks/crossover.py``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Crossovers:
    """Between algorithms for programs over given patterns.

    Attributes:
        q_entries, q_samples: the interior point in Q solves systems of size P d (d + 1) / 2 and n.
        cheap_cones, tolerable_cones: Clarabel factors a triangle of (rows + cols) per semidefinite block. Up to the
            first number of operations it is fast; up to the second it is worth trying when all else has stalled.
        small_design, tiny_design: entries of the design up to which Clarabel runs first, with semidefinite cones
            and without.
        largest_kernel: samples, or twice the columns of the design, whose kernel matrix is factored; beyond it a few
            neurons at a time are moved.
        narrow_work: n k^2 of a narrow design of k columns, beyond which moving a few neurons at a time comes first: its
            Gram matrix alone takes seconds.
        hand_over, hand_over_short: the gap from which one step of Newton's method, or two for up to ``short`` samples,
            is cheaper than more steps of ADMM.
        steps, steps_short: of ADMM, after which Newton's method takes over in any case.
        tiny: samples up to which Newton's method goes on to the last digit, which costs next to nothing.
        single: the gap that single precision is worth trying for.
    """

    q_entries: int = 1500
    q_samples: int = 3000
    cheap_cones: float = 3e6
    tolerable_cones: float = 3e8
    small_design: int = 150_000
    tiny_design: int = 20_000
    largest_kernel: int = 12_000
    narrow_work: float = 3e10
    hand_over: float = 2e-4
    hand_over_short: float = 1e-3
    steps: int = 80
    steps_short: int = 40
    short: int = 1000
    tiny: int = 200
    single: float = 1e-7


@dataclass(frozen=True)
class ProofCrossovers:
    """Between proofs for ReLU networks whose neurons were searched for (docs/product_bound.md).

    Attributes:
        share, least, most: of the seconds of training, and seconds, that a proof is given without a limit of time.
        tried, promising: simplices of a first query on the sphere without a limit of time, and the gap that it must
            leave for longer queries to follow: of ten tables of ranks 4 and 5 those with at most 0.4 after 10,000 were
            at 0.15 % and less after 50,000, those with 0.8 still at 0.5.
        sphere: seconds of those longer queries, and of training with what they find, without a limit of time.
        first: seconds that the short first round may take in any case, and later ones while they are worth it ...
        worth: ... which they are where the round before has left less than this share of the gap.
        per_row: pairs of rows that have a multiplier, for every row.
        dense: rows beyond which products of clusters of rows take the place of products of rows ...
        dense_without_signs: ... where signs of output weights are not distinguished, and clusters prove much less.
        clusters: how many.
        most_outputs: beyond, signs of output weights are not distinguished.
        helper_after, helper_left: seconds of a proof after which a second process is started where a core is free, and
            that must be left: its start takes 2 to 4 s.
    """

    share: float = 0.5
    least: float = 0.4
    most: float = 10.0
    tried: int = 10_000
    promising: float = 0.5
    sphere: float = 10.0
    first: float = 10.0
    worth: float = 1 / 3
    per_row: int = 100
    dense: int = 600
    dense_without_signs: int = 2000
    clusters: int = 400
    most_outputs: int = 3
    helper_after: float = 2.0
    helper_left: float = 6.0

    def seconds_after(self, training: float) -> float:
        """That a proof is given without a limit of time."""
        return min(max(self.share * training, self.least), self.most)


@dataclass(frozen=True)
class FoldCrossovers:
    """Between folds of a cross-validation that are trained together and one after another.

    Attributes:
        numbers: in the samples of one batch of folds; beyond, a step is arithmetic, and gains nothing from company.
    """

    numbers: int = 200_000


CROSSOVERS = Crossovers()
FOLDS = FoldCrossovers()
PROOFS = ProofCrossovers()
