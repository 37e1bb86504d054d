"""The judge: what returned weights are worth, computed in float64 from the weights alone, for all alike.

A lower bound holds whoever found it. So every point is measured against the best dual value that anybody's point of the
race gives: (primal - best dual) / primal. Nobody is punished for a bad dual point.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from bidual.problems.certificate import Scope, certify, judge
from bidual.problems.problem import ReluProblem
from convex import gated_problem, patterns, relu_problem
from problems import Arrays, Spec

_ROUNDING = 1e-13  # of the loss of the zero network; what is less is rounding, as in certificates
Answer = Mapping[str, np.ndarray]


@dataclass
class Judge(ABC):
    """Keeps the best lower bound for every weight decay, over all answers it has seen."""

    spec: Spec
    arrays: Arrays
    betas: Sequence[float]
    best: list[float] = field(init=False)
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        self.best = [0.0] * len(self.betas)
        self.scale = gated_problem(self.spec, self.arrays, self.betas[-1]).datafit.scale

    def look(self, answer: Answer) -> tuple[float, ...]:
        """The primal values of an answer; its duals are kept. If there are fewer than betas, they are the last."""
        count, primals = len(answer["Z"]) if "Z" in answer else 1, []
        for index in range(count):
            place = len(self.betas) - count + index
            primal, dual = self._bounds(self.betas[place], answer, index)
            self.best[place] = max(self.best[place], dual)
            primals.append(primal)
        return tuple(primals)

    def gap(self, primals: Sequence[float]) -> float:
        """The greatest relative gap of an answer; infinite if a value is not finite."""
        return max(map(self._gap, primals, self.best[-len(primals) :]))

    @abstractmethod
    def _bounds(self, beta: float, answer: Answer, index: int) -> tuple[float, float]:
        """A primal value, and the best dual value from the point's own residual and from a dual point handed over."""

    @abstractmethod
    def _gap(self, primal: float, dual: float) -> float: ...

    def _relative(self, difference: float, primal: float) -> float:
        if not np.isfinite(primal):
            return float("inf")
        return 0.0 if difference <= _ROUNDING * self.scale else difference / primal


class GatedJudge(Judge):
    """Gated networks: the package's own certificate of the lifted variable."""

    def _bounds(self, beta: float, answer: Answer, index: int) -> tuple[float, float]:
        candidates = [torch.from_numpy(answer["dual"][index])] if "dual" in answer else []
        problem = gated_problem(self.spec, self.arrays, beta)
        certificate = certify(problem, torch.from_numpy(answer["Z"][index].astype(np.float64)), candidates)
        return certificate.primal, certificate.dual

    def _gap(self, primal: float, dual: float) -> float:
        return self._relative(primal - dual, primal)


class ReluJudge(Judge):
    """ReLU networks over the cones of given patterns (CP eq. 9): the price of the network that the weights are.

    A network whose neurons leave the cones can cost less than the optimum over them: being below counts as being above.
    """

    def _bounds(self, beta: float, answer: Answer, index: int) -> tuple[float, float]:
        problem = relu_problem(self.spec, self.arrays, beta)
        neurons, signs = (torch.from_numpy(np.asarray(answer[key], np.float64)) for key in ("neurons", "signs"))
        if not bool(torch.isfinite(neurons).all()):
            return float("inf"), 0.0
        lifted = (torch.linalg.vector_norm(neurons, dim=1) * signs)[:, None, None]
        over = problem.restricted_to(neurons)
        trials = [over.residual(lifted), *(torch.from_numpy(V) for V in answer.get("dual", ()))]
        return over.primal(lifted), max(cone_dual(problem, patterns(self.arrays), V) for V in trials)

    def _gap(self, primal: float, dual: float) -> float:
        return self._relative(abs(primal - dual), primal)


def make_judge(spec: Spec, arrays: Arrays, betas: Sequence[float]) -> Judge:
    return (ReluJudge if spec.network == "relu" else GatedJudge)(spec, arrays, betas)


def cone_dual(problem: ReluProblem, active: Tensor, V: Tensor) -> float:
    """A lower bound of CP eq. (9) from any V, scaled until it is feasible for all cones."""
    zero = problem.restricted_to(torch.ones_like(problem.X[:1]))
    Z = torch.zeros(zero.operator.block_shape, dtype=torch.float64)
    return judge(zero, Z, V, lambda W: cone_polar(problem.X, active, W), Scope.BLOCKS).dual


def cone_polar(X: Tensor, active: Tensor, V: Tensor) -> float:
    """An upper bound of max |V^T D_p X u| over all p and all u of length 1 in the cone (2 D_p - I) X u >= 0.

    For any l >= 0 it is at most |X^T D_p V + X^T (2 D_p - I) l|; non-negative least squares finds the best l.
    """
    rows, weights = X.numpy(), V[:, 0].numpy()
    return max(
        (
            _least_norm(rows.T * (2.0 * side - 1), sign * rows.T @ (side * weights))
            for side in active.numpy()
            for sign in (1.0, -1.0)
        ),
        default=0.0,
    )


def _least_norm(A: np.ndarray, g: np.ndarray) -> float:
    """The least |g + A l| over l >= 0; |g|, which is as sound, where the solver gives up."""
    try:
        return float(nnls(A, -g, maxiter=30 * A.shape[1])[1])
    except RuntimeError:
        return float(np.linalg.norm(g))


def claimed_gap(answer: Answer) -> float | None:
    """The gap that a system certified by itself, where it does; the greatest of a path."""
    return float(np.max(answer["claimed"])) if "claimed" in answer else None
