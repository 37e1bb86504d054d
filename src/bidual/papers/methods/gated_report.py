"""A gated parallel model compared with real networks."""

from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures import GatedParallel
from bidual.architectures.modules import RebuildableModule
from bidual.losses.datafit import Datafit
from bidual.papers.methods.decoding import SubNetworks, Violation, real_sub_networks, violation
from bidual.papers.methods.path_norm import path_norm_of
from bidual.patterns import with_constant
from bidual.polar.subnetworks.base import copies
from bidual.problems.certificate import Certificate
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from bidual.training.relu.plan import ReluPlan
from bidual.types import Blocks, Matrix

Data = tuple[Float[Tensor, "n d"], Matrix]


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its objective F + beta * price on the training samples, rounded up, and its accuracies."""

    module: RebuildableModule
    objective: float
    price: float
    train_accuracy: float
    test_accuracy: float | None

    def __str__(self) -> str:
        test = "" if self.test_accuracy is None else f", test accuracy {self.test_accuracy:.3f}"
        accuracy = f"train accuracy {self.train_accuracy:.3f}{test}"
        return f"objective {self.objective:.5g}, {accuracy}, norm of the weights {self.price:.4g}"


@dataclass(frozen=True, eq=False)
class GatedReport:
    """The gated model beside real networks under the same loss and beta * path norm (PR eq. 4, m_2 = 1).

    Attributes:
        gated: the gated linear model; its price is sum_k |U_k|_F and not a path norm.
        certificate: of the gated model, over the given gates.
        violation: how far the gated model is from being a ReLU network.
        decoded: the real network with the gated model's predictions on the samples.
        shortened: how many of its sub-networks are split as cheaply as possible, and ``parts`` of how many.
        zero: the objective of the zero network.
        real: a real network, the copies of a two-layer network trained at beta / sqrt(m_1).
        real_certificate: of that two-layer network among all two-layer networks; the optimum of parallel networks is
            at most ``real.objective``.
    """

    gated: Model
    certificate: Certificate
    violation: Violation
    decoded: Model
    shortened: int
    parts: int
    zero: float
    real: Model
    real_certificate: Certificate

    def __str__(self) -> str:
        growth = self.decoded.price / self.gated.price if self.gated.price > 0 else 1.0
        return "\n".join(
            [
                f"gated model (not a ReLU network): {self.gated}; {_brief(self.certificate)}; {self.violation}",
                f"decoded real network: {self.decoded}, {growth:.3g} times the gated model's; the objective is "
                f"{self.decoded_times_zero:.3g} times that of zero; {self.shortened} of {self.parts} parts split at "
                "least cost",
                f"zero network: objective {self.zero:.5g}",
                f"copied two-layer network: {self.real}; among two-layer networks: {_brief(self.real_certificate)}",
            ]
        )

    @property
    def decoded_times_zero(self) -> float:
        return self.decoded.objective / self.zero if self.zero > 0 else float("inf")


def _brief(certificate: Certificate) -> str:
    return f"relative gap {certificate.relative_gap:.1e} for {certificate.scope.value}"


def gated_report(
    family: GatedParallel,
    X: Float[Tensor, "n d"],
    datafit: Datafit,
    beta: float,
    *,
    test: Data | None = None,
    tol: float = 1e-4,
    max_time: float = 30.0,
    seed: int = 0,
) -> GatedReport:
    """Solve the gated model, decode it, and compare with real networks.

    Args:
        test: samples and targets, encoded as the training targets are, for accuracies.
        max_time: seconds for cheaper splits, and again for the two-layer network.
        seed: of the search for two-layer neurons.
    """
    outputs = datafit.targets.shape[1]
    problem = Problem(family.lift(X, outputs), datafit, family.gauge(), beta)
    samples = with_constant(X) if family.bias else X
    whole = ParallelProblem(samples, datafit, beta, family.gates.width)
    judge = _Judge(family, whole, X, test)
    solution = solve_auto(problem, Limits(tol))
    parts = real_sub_networks(family.gates, samples, solution.Z, max_time=max_time)
    gated = family.decode(solution.Z, problem.predictions(solution.Z)[1])
    price = problem.gauge.value(solution.Z)
    plain = ReluProblem(samples, datafit, beta / sqrt(family.gates.width))
    two = ReluPlan(samples, seed=seed).train(plain, Limits(tol, max_time=max_time))
    return GatedReport(
        judge.model(gated, _objective(problem, solution.Z), price),
        solution.certificate,
        violation(family.gates, samples, solution.Z),
        judge.network(parts),
        parts.shortened,
        parts.splits,
        datafit.upper_bound(torch.zeros_like(datafit.targets), 0.0),
        judge.network(SubNetworks(copies(two.neurons, family.gates.width), two.Z / sqrt(family.gates.width))),
        two.certificate,
    )


@dataclass(frozen=True, eq=False)
class _Judge:
    family: GatedParallel
    problem: ParallelProblem
    X: Tensor
    test: Data | None

    def network(self, parts: SubNetworks) -> Model:
        """A real network, priced by its own weights."""
        over = self.problem.restricted_to(parts.neurons)
        module = parts.decode(self.family.gates.width, self.family.bias, over.predictions(parts.weights)[1])
        return self.model(module, _objective(over, parts.weights), float(path_norm_of(module).detach()))

    def model(self, module: RebuildableModule, objective: float, price: float) -> Model:
        data = self.problem.datafit
        assert data.shift is not None
        train = _accuracy(module, self.X, data.targets + data.shift)
        return Model(module, objective, price, train, None if self.test is None else _accuracy(module, *self.test))


def _objective(problem: Problem, Z: Blocks) -> float:
    """An upper bound of P(Z) in real arithmetic."""
    problem, Z = problem.to(torch.float64), Z.to(torch.float64)
    return problem.upper_bound(Z, problem.operator.forward(Z))


def _accuracy(module: RebuildableModule, X: Tensor, Y: Matrix) -> float:
    """The share of equal signs for one output, of equal largest entries for several."""
    with torch.no_grad():
        P = module(X)
    right = (P > 0) == (Y > 0) if Y.shape[1] == 1 else (P.argmax(1) == Y.argmax(1))
    return float(right.double().mean())
