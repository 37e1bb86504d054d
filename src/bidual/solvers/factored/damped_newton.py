"""Newton's method with Levenberg-Marquardt damping, for any quadratic model of the factored objective."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.sparse import written_out
from bidual.operators import HasKernel
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram

_TRIES = 60
_LARGEST = 1e20
_PATIENCE, _SLOW = 20, 1e-5  # a run is slow if so many steps lower the value by less than this share


@dataclass(frozen=True, eq=False)
class Model:
    """g^T s + 1/2 s^T (J^T J + B) s, with B block-diagonal: q blocks of size k, and v = k q variables.

    ``scale`` is a typical curvature, to begin the damping with.
    """

    gradient: Float[Tensor, " v"]
    J: Float[Tensor, "r v"]
    blocks: Float[Tensor, "q k k"]
    scale: float

    def at(self, step: Float[Tensor, " v"]) -> float:
        own = step.reshape(*self.blocks.shape[:2], 1)
        bend = (self.J @ step).square().sum() + (own * (self.blocks @ own)).sum()
        return float(self.gradient @ step + 0.5 * bend)

    def minimiser(self, damping: float) -> Float[Tensor, " v"] | None:
        """-(J^T J + B + damping I)^-1 g, or None if that matrix is not positive definite by Cholesky.

        By the normal equations, or through the r x r matrix of Woodbury's formula if it is smaller.
        """
        wide = 2 * self.J.shape[0] < self.J.shape[1]
        return self._woodbury(damping) if wide else self._normal(damping)

    @cached_property
    def _hessian(self) -> Float[Tensor, "v v"]:
        q, k, _ = self.blocks.shape
        H = self.J.T @ self.J
        index = torch.arange(q, device=H.device)
        H.view(q, k, q, k)[index, :, index, :] += self.blocks
        return H

    def _normal(self, damping: float) -> Float[Tensor, " v"] | None:
        H = self._hessian.clone()
        H.diagonal().add_(damping)
        L, wrong = torch.linalg.cholesky_ex(H)
        return None if bool(wrong) else -torch.cholesky_solve(self.gradient[:, None], L)[:, 0]

    def _woodbury(self, damping: float) -> Float[Tensor, " v"] | None:
        """(D + J^T J)^-1 = D^-1 - D^-1 J^T (I + J D^-1 J^T)^-1 J D^-1 with D = B + damping I, if D is positive."""
        q, k, _ = self.blocks.shape
        L, wrong = torch.linalg.cholesky_ex(self.blocks + damping * torch.eye(k).to(self.blocks))
        if bool(wrong.any()):
            return None
        right = torch.cat([self.gradient[:, None], self.J.T], 1).reshape(q, k, -1)
        solved = torch.cholesky_solve(right, L).reshape(q * k, -1)
        g, DJ = solved[:, 0], solved[:, 1:]
        inner = self.J @ DJ
        inner.diagonal().add_(1)
        return -(g - DJ @ torch.linalg.solve(inner, self.J @ g))


@dataclass(frozen=True)
class DampedNewton(Method):
    """Steps to the minimiser of a damped model; its damping falls while the model is right, and grows if not."""

    max_steps = 500
    check_every = 5

    def _refusal(self, program: FactoredProgram) -> str | None:
        if not isinstance(program.operator, HasKernel):
            return f"{self.name} needs operators that are HasKernel; {type(program.operator).__name__} is not."
        rows, variables = self._size(program)
        need = 8 * (2 * rows * variables + 3 * min(variables, 2 * rows) ** 2)
        if need > available_bytes(program.operator.like.device):
            return f"{self.name} needs {human_bytes(need)} for its matrices, more than there is."
        return super()._refusal(program)

    @abstractmethod
    def _size(self, program: FactoredProgram) -> tuple[int, int]:
        """Rows and columns of J."""

    @abstractmethod
    def _model(self, program: FactoredProgram, state: State) -> Model: ...

    @abstractmethod
    def _moved(self, program: FactoredProgram, state: State, step: Tensor) -> State: ...

    def step(self, program: FactoredProgram, state: State) -> State:
        model = self._model(program, state)
        damping, anchor, waited = (model.scale, state.value, 0) if state.memory is None else state.memory
        noise = 16 * torch.finfo(model.J.dtype).eps * abs(state.value)
        for _ in range(_TRIES):
            step = model.minimiser(damping)
            if step is None or not bool(torch.isfinite(step).all()):
                damping = max(4 * damping, 1e-8 * model.scale)
                continue
            new, promised = self._moved(program, state, step), -model.at(step)
            if promised <= noise:  # below the rounding of values; the step may still reduce the gradient
                return self._polished(program, state, new)
            ratio = (state.value - new.value) / promised
            if ratio > 1e-3:
                return _watched(new, _next_damping(damping, ratio), anchor, waited + 1)
            damping *= 4
            if damping > _LARGEST * model.scale:
                break
        return State(state.factors, state.value, True)

    def _polished(self, program: FactoredProgram, old: State, new: State) -> State:
        better = program.stationarity(new.factors) < 0.5 * program.stationarity(old.factors)
        kept = new if better else old
        damping, *rest = old.memory or (0.0, old.value, 0)
        return State(kept.factors, kept.value, not better, memory=(0.1 * damping, *rest))


def _watched(state: State, damping: float, anchor: float, waited: int) -> State:
    """The state with its memory: the damping, the value some steps ago, and how many; slow if little came of them."""
    if waited < _PATIENCE:
        state.memory = (damping, anchor, waited)
        return state
    state.slow = anchor - state.value < _SLOW * abs(anchor)
    state.memory = (damping, state.value, 0)
    return state


def _next_damping(damping: float, ratio: float) -> float:
    if ratio > 0.75:
        return damping / 6
    return 2 * damping if ratio < 0.25 else damping


def design_blocks(program: FactoredProgram) -> Float[Tensor, "n p a q"]:
    """The features of one output, by block, row and readout (of which there is one without a readout)."""
    operator = program.operator
    assert isinstance(operator, HasKernel)
    p, a, b = operator.block_shape
    return written_out(operator.design()).reshape(-1, p, a, b // operator.output_shape[1])


def as_columns(parts: Float[Tensor, "p k m"]) -> Float[Tensor, " p*m*k"]:
    """One vector, ordered by block, column and row."""
    return parts.mT.reshape(-1)


def from_columns(x: Tensor, p: int, m: int) -> Float[Tensor, "p k m"]:
    return x.reshape(p, m, -1).mT


def repeat_blocks(blocks: Float[Tensor, "p k k"], m: int) -> Float[Tensor, "q k k"]:
    """A block's matrix, once for each of its columns."""
    return blocks.repeat_interleave(m, 0)
