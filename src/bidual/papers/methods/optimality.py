"""Every test of optimality in BM for a factored point, which of them apply, and the sound certificate."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.gauges import Factors
from bidual.operators import HasKernel
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.problems.certificate import Certificate
from bidual.solvers.factored.arithmetic import inner
from bidual.solvers.factored.program import FactoredProgram


@dataclass(frozen=True, eq=False)
class OptimalityReport:
    r"""How good a point of (14) is, by theorem.

    Attributes:
        value: the objective of (14), a sum over samples.
        gradient_norm: how stationary the point is; for (19) and norms with kinks, the length of a proximal step.
        missed: <g, w> / 2, gradient times factors: what (20) leaves out, and what vanishes at stationary points.
        excess: Omega°(A* grad F) / beta; for a ReLU network over all patterns, an upper bound.
        certificate: sound at every point; beside it, none of the theorems is needed.
        m, rows, cols: factors per block, and the block's shape d_c x d_r.
        hidden_ranks, output_ranks, stacked_ranks: of U_p, of W_p and of [U_p; W_p].
        form: "smooth" for (17) and (18), "cone" for (19), "norms" for other pairs.
        zhang: A.4's count 1/4 (L/mu - 1)^2 rank(Z), at rank one at least, None where mu = 0.
        unit: what factors are: "neurons", "filters" (BM eq. 24, 125, 126) or "heads" (eq. 26, 133, 134).
    """

    value: float
    gradient_norm: float
    missed: float
    excess: float
    certificate: Certificate
    m: int
    rows: int
    cols: int
    hidden_ranks: Int[Tensor, " p"]
    output_ranks: Int[Tensor, " p"]
    stacked_ranks: Int[Tensor, " p"]
    form: str
    zhang: float | None
    unit: str = "neurons"

    @property
    def bound(self) -> float:
        """(20), on (p - p*) / p*; true at exactly stationary points only (BM Theorem 3.4)."""
        return max(self.excess - 1, 0.0)

    @property
    def corrected_bound(self) -> float:
        """(20) with its missing term: p* >= (value - <g, w>/2) / max(1, excess) holds at every point."""
        lower = (self.value - self.missed) / max(self.excess, 1.0)
        return self.value / lower - 1 if lower > 0 else math.inf

    @property
    def certified_bound(self) -> float:
        """In the terms of (20), for these factors: (value - p*) / p* <= (value - dual) / dual."""
        above = max(self.value, self.certificate.primal) - self.certificate.dual
        return max(above, 0.0) / self.certificate.dual if self.certificate.dual > 0 else math.inf

    @property
    def enough_factors(self) -> bool:
        """m >= min(d_c, d_r): no local minimum of (17), (18) is spurious (BM asks for d_c + d_r)."""
        return self.form == "smooth" and self.m >= min(self.rows, self.cols)

    @property
    def paper_factors(self) -> bool:
        """m >= d_c + d_r, what BM Theorem 3.3 asks for; False where the theorem does not hold."""
        return self.form == "smooth" and self.m >= self.rows + self.cols

    @property
    def rank_deficient(self) -> bool:
        """Whether [U_p; W_p] has less than m independent columns in every block: BM Theorem 3.3, second half; False
        where the theorem does not hold."""
        return self.form == "smooth" and bool((self.stacked_ranks < self.m).all())

    @property
    def full_rank(self) -> bool:
        """Whether rank U_p = rank W_p = min(d_c, d_r) in every block: BM Theorem 3.5, for exactly stationary points."""
        return self.form == "smooth" and bool((self._full_blocks).all())

    @property
    def _full_blocks(self) -> Tensor:
        least = min(self.rows, self.cols)
        return (self.hidden_ranks == least) & (self.output_ranks == least)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"certificate of the product U W^T: {self.certificate}. It holds at every point."
        yield f"these factors are within {self.certified_bound:.2e} of the optimum, over p*."
        yield f"objective {self.value:.9g}, |gradient| {self.gradient_norm:.2e}, <g, w>/2 {self.missed:.2e}."
        yield self._on_bound()
        yield self._on_factors()
        yield self._on_rank_deficiency()
        yield self._on_full_rank()
        yield self._on_zhang()

    def _on_bound(self) -> str:
        share = abs(self.missed) / self.value if self.value > 0 else 0.0
        sound = "nothing" if math.isinf(self.corrected_bound) else f"{self.corrected_bound:.2e}"
        return (
            f"(20), Theorem 3.4: the gap over p* is at most {self.bound:.2e} if the point is exactly stationary; it "
            f"leaves out <g, w>/2, {share:.1e} of the objective. With that term: {sound}."
        )

    def _on_factors(self) -> str:
        least, sum_ = min(self.rows, self.cols), self.rows + self.cols
        if self.form == "cone":
            return "Theorem 3.3, number of factors: does not apply, it is false for the ReLU program for every m."
        if self.form == "norms":
            return "Theorem 3.3, number of factors: not proved for these norms."
        counts = (
            f"Corollary 3.10, number of heads: {self.m} per gate; it asks for d^2 + d c = {sum_} (of linear attention) "
            f"and min(d^2, d c) = {least} suffice"
            if self.unit == "heads"
            else f"Theorem 3.3, number of factors: m = {self.m}, the theorem asks for d_c + d_r = {sum_} and "
            f"min(d_c, d_r) = {least} suffices"
        )
        verdict = "no local minimum is spurious" if self.enough_factors else "local minima may be spurious"
        return f"{counts}: {verdict}. A stationary point need not be a local minimum."

    def _on_rank_deficiency(self) -> str:
        count, blocks = int((self.stacked_ranks < self.m).sum()), len(self.stacked_ranks)
        start = f"Theorem 3.3, rank deficiency: {count} of {blocks} blocks have rank below m"
        if self.form == "cone":
            return f"{start}; does not apply, rotations of the factors leave the cone."
        if self.form == "norms":
            return f"{start}; not proved for these norms."
        verdict = "if this is a local minimum it is global" if self.rank_deficient else "it says nothing unless all do"
        return f"{start}; {verdict}."

    def _on_full_rank(self) -> str:
        if self.form != "smooth":
            return "Theorem 3.5, full rank: does not apply, it is for l2 norms without constraints."
        full, blocks = int(self._full_blocks.sum()), len(self.hidden_ranks)
        sure = f"if exactly stationary, this is global, and Omega°/beta = {self.excess:.6f} would be 1"
        verdict = sure if self.full_rank else "it says nothing unless all do"
        return f"Theorem 3.5: {full} of {blocks} blocks have full rank min(d_c, d_r); {verdict}."

    def _on_zhang(self) -> str:
        if self.zhang is None:
            return "A.4: void here, F(A Z) is not strongly convex in Z (more weights than samples, or a flat loss)."
        met = "more" if self.m > self.zhang else "not more"
        return (
            f"A.4: m = {self.m} is {met} than {self.zhang:.3g}, its count if the optimum has this point's rank; it is "
            "proved for symmetric factors without a regulariser, so take it as a hint."
        )


def optimality_report(program: FactoredProgram, factors: Factors, rank_tol: float = 1e-5) -> OptimalityReport:
    """Judge any point; singular values below ``rank_tol`` times the largest of all blocks count as zero."""
    program = program.in_float64()
    factors = program.check(factors)
    program.check_feasible(factors)
    (_, a, m), (_, b, _) = program.shapes
    stacked = torch.cat([factors.U, factors.W], 1)
    return OptimalityReport(
        program.value(factors),
        program.stationarity(factors),
        0.5 * inner(program.gradient(factors), factors),
        program.polar(factors) / program.problem.beta,
        program.certificate(factors),
        m,
        a,
        b,
        _ranks(factors.U, rank_tol),
        _ranks(factors.W, rank_tol),
        _ranks(stacked, rank_tol),
        "cone" if isinstance(program, ConeProgram) else "smooth" if program.smooth else "norms",
        _zhang(program, factors, rank_tol),
        program.operator.unit,
    )


def _ranks(parts: Float[Tensor, "p k m"], tol: float) -> Int[Tensor, " p"]:
    values = torch.linalg.svdvals(parts)
    return (values > tol * values.max().clamp(min=torch.finfo(parts.dtype).tiny)).sum(1)


def _zhang(program: FactoredProgram, factors: Factors, tol: float) -> float | None:
    """1/4 (L/mu - 1)^2 rank(Z) of BM A.4, for squared loss: L and mu are the extreme eigenvalues of A* A."""
    operator, data = program.operator, program.problem.datafit
    if not program.smooth or not isinstance(operator, HasKernel) or not data.loss.half_square or data.intercept:
        return None
    B = operator.design()
    if B.shape[1] > B.shape[0]:
        return None
    values = torch.linalg.svdvals(data.weights.sqrt() * B)
    if float(values[-1]) <= 1e-12 * float(values[0]):
        return None
    rank = max(int(_ranks(program.product(factors), tol).max()), 1)
    return 0.25 * float((values[0] / values[-1]).square() - 1) ** 2 * rank
