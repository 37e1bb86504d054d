"""Proximal gradient on the factors, for constraints and for prices with kinks."""

from dataclasses import dataclass

from bidual.gauges import Factors
from bidual.solvers.factored.arithmetic import inner, norm, plus
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram

_HALVINGS = 60


@dataclass
class _Memory:
    before: Factors
    momentum: int
    rate: float


@dataclass(frozen=True)
class Proximal(Method):
    r"""w <- prox_t(e - t grad F(e)) at the extrapolated e = w + k/(k+3) (w - w_before), with backtracking.

    The prox is that of beta times the penalty of (14) over feasible factors: for the ReLU program (19) u / (1 + t beta)
    projected onto its cone, for norm pairs with kinks that of 1/2 |u|_C^2. Where the objective would rise, the
    extrapolation starts again, so that it never does (Li and Lin, 2015).
    """

    name = "proximal"
    max_steps = 20_000
    check_every = 50

    def _refusal(self, program: FactoredProgram) -> str | None:
        return None

    def init(self, program: FactoredProgram, factors: Factors) -> State:
        return State(factors, program.value(factors), memory=_Memory(factors, 0, 1.0))

    def step(self, program: FactoredProgram, state: State) -> State:
        memory = state.memory
        share = memory.momentum / (memory.momentum + 3)
        ahead = plus(state.factors, plus(state.factors, memory.before, -1.0), share) if share else state.factors
        found = _descend(program, ahead, 1.5 * memory.rate)
        if found is not None and found[1] < state.value:
            factors, value, rate = found
            return State(factors, value, memory=_Memory(state.factors, memory.momentum + 1, rate))
        restarted = _Memory(state.factors, 0, memory.rate if found is None else found[2])
        return State(state.factors, state.value, not memory.momentum, memory=restarted)


def _descend(program: FactoredProgram, at: Factors, rate: float) -> tuple[Factors, float, float] | None:
    """A proximal step that the quadratic bound holds for: the factors, their objective and the rate."""
    gradient, base = program.data_gradient(at), program.problem.datafit.value(program.predictions(at))
    for _ in range(_HALVINGS):
        moved = program.prox(plus(at, gradient, -rate), rate)
        step = plus(moved, at, -1.0)
        data = program.problem.datafit.value(program.predictions(moved))
        if data <= base + inner(gradient, step) + norm(step) ** 2 / (2 * rate) + 1e-14 * abs(base):
            return moved, data + program.problem.beta * program.penalty(moved), rate
        rate /= 2
    return None
