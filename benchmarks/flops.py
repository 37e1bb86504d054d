"""Operations that the gated product and a step of each solver need, by formula; a multiply-add counts as two.

n samples, d features, P patterns, c outputs; r blocks are active (nonzero) at the point before the step.
"""

from dataclasses import dataclass

from gated_problems import Case

_ROUNDS = 2  # of refinement: 1e-6 twice


@dataclass(frozen=True)
class Work:
    """Operations in either precision."""

    single: float = 0.0
    double: float = 0.0


def product_flops(case: Case) -> float:
    """Two products of (n, P) with (P, d c), a multiplication and an addition each: 4 n P d c."""
    return 4.0 * case.n * case.patterns * case.d * case.c


def product_bytes(case: Case, itemsize: int) -> float:
    """What both products read and write if caches keep nothing between one array and the next.

    The patterns D twice, X twice, predictions and V, Z and A* V, and the (n, d c) arrays D Z and [v_k X]_k written and
    read: (2 n P + 2 n d + 2 n c + 2 P d c + 4 n d c) numbers.
    """
    n, d, p, c = case.n, case.d, case.patterns, case.c
    return 2.0 * itemsize * (n * p + n * d + n * c + p * d * c + 2 * n * d * c)


def admm_work(case: Case, active: int) -> Work:
    """Float32: A* nu 2 n P d c, A Z of r active blocks 2 n r d c, two triangular solves 2 n^2 c."""
    n, dc = case.n, case.d * case.c
    return Work(single=2.0 * n * (case.patterns + active) * dc + 2.0 * n * n * case.c)


def newton_work(case: Case, active: int) -> Work:
    """For each output, in float32 with symmetry used: the kernel n^2 (r + d), its factor n^3 / 3, the Hessian n^2 r +
    n r^2 + 2 n r d, its factor r^3 / 3, and solves 2 n^2 each; a round of refinement is 4 n P d in float64.

    One trial of the line search and ``_ROUNDS`` of refinement are counted. ``active`` sums r over the outputs.
    """
    n, d, c, r = case.n, case.d, case.c, active / case.c
    kernel, hessian = n * n * (r + d) + n**3 / 3, n * n * r + n * r * r + 2 * n * r * d + r**3 / 3
    return Work(c * (kernel + hessian + 2 * (1 + _ROUNDS) * n * n), _ROUNDS * product_flops(case))


def q_work(case: Case, active: int) -> Work:
    """Float64, with k = P d columns, m = min(n, k + c) rows and u = P d (d + 1) / 2 unknowns.

    Newton's matrix m^2 k + k^2 (m + c) + u^2, its factor u^3 / 3 and two right sides 4 u^2; M m^2 k + 2 k m d and its
    factor m^3 / 3; alpha with one refinement 4 m^2 c + 6 k m c.
    """
    c, k, u = case.c, case.patterns * case.d, case.patterns * case.d * (case.d + 1) / 2
    m = min(case.n, k + c)
    newton = m * m * k + k * k * (m + c) + 5 * u * u + u**3 / 3
    return Work(double=newton + m * m * k + 2 * k * m * case.d + m**3 / 3 + 4 * m * m * c + 6 * k * m * c)
