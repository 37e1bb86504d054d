"""How far a two-layer ReLU network, trained anywhere, is from the best one there is."""

import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from bidual.architectures import ReluMLP
from bidual.architectures.modules import RebuildableModule, ReluNetwork
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.class_weights import ClassWeight, check_class_weight, class_weighted
from bidual.estimators.inputs import as_plain_array, as_targets, full_samples
from bidual.estimators.parameters import COUNT, FRACTION, POSITIVE, SECONDS, as_count, one_of
from bidual.estimators.saving import read_saved
from bidual.io import foreign
from bidual.io.foreign import TwoLayerWeights, class_codes, from_module, number_targets
from bidual.losses import Loss, resolve_loss
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L2
from bidual.numerics.rounding import TINY, gamma, largest_sum, length, rounded_up
from bidual.numerics.sparse import from_scipy
from bidual.patterns import with_constant
from bidual.polar.products.witness import ProductProof
from bidual.problems.certificate import Certificate, Scope, SoundnessError, judge
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.runtime.json_text import one_line
from bidual.runtime.numerical_errors import check_magnitude, numerical_errors_as_value_error
from bidual.training.relu.plan import ORACLES, ReluPlan
from bidual.training.relu.start import NetworkStart
from bidual.types import Matrix

Network: TypeAlias = foreign.Network | ConvexEstimator


@dataclass(frozen=True, eq=False)
class NetworkCertificate:
    """Bounds on how much better than a given network any other of its kind can be.

    Both bounds hold in real arithmetic: rounding is allowed for.

    Attributes:
        objective: of the network as it is, rounded up: sum of losses + beta/2 times the sum of squares of its weights,
            hidden biases included, output biases not; infinity where it is beyond all numbers.
        lower_bound: no two-layer ReLU network of any width has a smaller objective.
        relative_gap: (objective - lower_bound) / objective.
        certificate: the witness of the lower bound, at the best network that was found on the way.
        better: that network, if its objective is surely smaller than the given one's; None otherwise.
        better_objective: its objective, or that of the given network, rounded up.
        status: how the search for a better network ended.
    """

    objective: float
    lower_bound: float
    relative_gap: float
    certificate: Certificate
    better: RebuildableModule | None
    better_objective: float
    status: str

    def __str__(self) -> str:
        found = "" if self.better is None else f"; a network with objective {self.better_objective:.9g} was found"
        return (
            f"objective {self.objective:.9g}, lower bound {self.lower_bound:.9g}, "
            f"relative gap {self.relative_gap:.2e}{found}"
        )


def certify(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    beta: float,
    loss: str | Loss = "auto",
    *,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    tol: float = 1e-4,
    max_time: float | None = None,
    oracle: str = "auto",
    n_starts: int | str = "auto",
    proof: "Certificate | NetworkCertificate | None" = None,
) -> NetworkCertificate:
    """Bound the objective of a two-layer ReLU network from below, over all networks of its kind and any width.

    Training goes on from the network's neurons; the residual of the best network found, moved to where more can be
    proved, is the dual point. It is not trusted: what counts is the certified bound that it gives (CP eq. 11). Networks
    of this package bring the witness of their own certificate, if it has one: on the same samples, loss and beta the
    bound is no smaller than that of ``fit``, up to rounding.

    Args:
        network: a ``torch.nn.Sequential(Linear, ReLU, Linear)``, a fitted ``MLPRegressor`` or ``MLPClassifier``, an
            estimator of this package, or a file (.safetensors, .onnx, .pt2). A layer without bias competes with
            networks without that bias.
        X: the samples it was trained on.
        y: their targets (n,) or (n, c), or labels.
        beta: the weight decay, in the scaling of a sum over samples. One that it was not trained with gives a larger
            gap, nothing worse.
        loss: "auto" (that of an estimator of this package, otherwise squared), "squared", "log_loss" (logistic, or
            softmax with several outputs), another name in ``bidual.losses.LOSSES``, or a Loss.
        sample_weight, class_weight: as the network was trained with, in ``fit`` and in the constructor of a classifier
            of this package; the objective is then the weighted sum of losses. They are not taken from the network.
        tol: the relative gap at which training for a better bound stops.
        max_time: a limit in seconds on that.
        oracle, n_starts: as in :class:`bidual.ConvexMLPClassifier`.
        proof: a certificate whose witness is tried too, by default that of a network of this package.
    """
    POSITIVE("beta", beta)
    FRACTION("tol", tol)
    SECONDS("max_time", max_time)
    one_of(ORACLES)("oracle", oracle)
    COUNT("n_starts", n_starts)
    check_class_weight("class_weight", class_weight)
    given = proof.certificate if isinstance(proof, NetworkCertificate) else proof
    if not isinstance(given, Certificate | None):
        raise TypeError(f"proof must be a Certificate, such as model.certificate_, got {type(given).__name__}.")
    network = _restored(network)
    weights = read_network(network)
    own = network._make_loss() if isinstance(network, ConvexEstimator) and loss == "auto" else loss
    chosen = resolve_loss(own, weights.n_outputs)
    targets = _targets(y, weights, chosen, getattr(network, "classes_", None), class_weight)
    problem = _problem(_samples(X, weights), targets, sample_weight, chosen, weights.output_bias is not None, beta)
    plan = ReluPlan(problem.X, oracle, as_count(n_starts, "auto"))
    limits = Limits(float(tol), max_time=None if max_time is None else float(max_time))
    known = getattr(network, "certificate_", None) if given is None else given
    with numerical_errors_as_value_error():
        return _certify(weights, problem, plan, limits, known)


def _problem(
    samples: Float[Tensor, "n d"],
    targets: "_Targets",
    sample_weight: ArrayLike | None,
    loss: Loss,
    intercept: bool,
    beta: float,
) -> ReluProblem:
    """Of the samples that have a weight."""
    if len(targets.Y) != len(samples):
        raise ValueError(f"X has {len(samples)} samples and y has {len(targets.Y)}; they must be as many.")
    weight = None
    if sample_weight is not None:
        plain = as_plain_array(sample_weight)
        weight = _check_sample_weight(plain, targets.Y, dtype=np.float64, ensure_non_negative=True)
        check_magnitude("sample_weight", weight)
    weight = class_weighted(targets.class_weight, targets.classes, targets.codes, weight)
    Y, there = torch.from_numpy(targets.Y), None if weight is None else torch.from_numpy(weight)
    if there is not None:
        samples, Y, there = (part[there > 0] for part in (samples, Y, there))
    if not len(Y):
        raise ValueError("all samples have weight zero; give some a positive weight.")
    return ReluProblem(samples, Datafit(loss, Y, there, intercept), float(beta))


def read_network(network: Network) -> TwoLayerWeights:
    """The weights of a torch module, of a fitted estimator of scikit-learn or of this package, or in a file."""
    network = _restored(network)
    if isinstance(network, ConvexEstimator):
        check_is_fitted(network)
        return from_estimator(network)
    return foreign.read_network(network)


def _restored(network: Network) -> Network:
    """The estimator in a model file of this package, anything else as it is."""
    saved = read_saved(Path(network)) if isinstance(network, (str, os.PathLike)) else None
    return network if saved is None else saved.estimator


def from_estimator(estimator: ConvexEstimator) -> TwoLayerWeights:
    """The weights of a fitted estimator of this package; a bias that it was not allowed to use is None."""
    weights = from_module(estimator.module_)
    hidden_bias = weights.hidden_bias if getattr(estimator.architecture_, "bias", True) else None
    output_bias = weights.output_bias if estimator.fit_intercept else None
    return TwoLayerWeights(weights.hidden, weights.output, hidden_bias, output_bias)


def _certify(
    weights: TwoLayerWeights, problem: ReluProblem, plan: ReluPlan, limits: Limits, proof: Certificate | None
) -> NetworkCertificate:
    neurons, own = _neurons(weights), _objective(weights, problem)
    start = L2.unit(neurons[neurons.any(1)])
    brought = None if proof is None else _again(problem, proof)
    prove = brought is None or _relative_gap(own.most, brought.dual) > limits.tol
    done = plan.train(problem, limits, start=NetworkStart(start), candidates=(own.gradient,), prove=prove)
    if brought is not None:
        done = replace(done, certificate=done.certificate.with_dual_of(brought))
    certificate = done.certificate
    if certificate.dual > own.most:
        raise SoundnessError(f"lower bound {certificate.dual!r} exceeds {own.most!r}; please report this network.")
    module = ReluMLP(done.neurons, weights.hidden_bias is not None).decode(done.Z, done.problem.predictions(done.Z)[1])
    assert isinstance(module, ReluNetwork)
    hidden_bias = None if weights.hidden_bias is None else module.hidden.bias
    output_bias = None if weights.output_bias is None else module.output.bias
    as_given = TwoLayerWeights.of(module.hidden.weight, module.output.weight, hidden_bias, output_bias)
    found = _objective(as_given, problem).most
    gap, status = certificate.relative_gap, f"of the best network that was found, {done.shortfall(limits.tol)}"
    if certificate.within(limits.tol):
        status = f"the best network that was found is optimal up to {gap:.1e}"
    improved = found < own.least
    better, best = module if improved else None, found if improved else own.most
    own_gap = _relative_gap(own.most, certificate.dual)
    return NetworkCertificate(own.most, certificate.dual, own_gap, certificate, better, best, status)


def _again(problem: ReluProblem, proof: Certificate) -> Certificate | None:
    """What the witness of a certificate proves for this problem, at the zero network; None where there is none."""
    V, witness = proof.dual_point.to(problem.X), proof.witness
    if witness is None or V.shape != problem.datafit.targets.shape:
        return None
    oracle = problem.oracle(lambda X: ProductProof(X, witness))
    nothing = problem.restricted_to(problem.X.new_zeros(1, problem.X.shape[1]))

    def polar(W: Matrix) -> float:
        return oracle.steepest(W).bracket.upper

    return judge(nothing, nothing.operator.zeros(), V, polar, Scope.ALL_PATTERNS, witness=witness)


def _relative_gap(objective: float, lower_bound: float) -> float:
    """At most one, where an objective is beyond all numbers too."""
    if not math.isfinite(objective):
        return 1.0
    return max(objective - lower_bound, 0.0) / objective if objective > 0 else 0.0


class _Objective(NamedTuple):
    """Bounds of a network's objective, and the gradient of its data term."""

    least: float
    most: float
    gradient: Matrix


def _objective(weights: TwoLayerWeights, problem: ReluProblem) -> _Objective:
    r"""The network's own objective, at its own output bias and scaling.

    A term x u w of a prediction goes through d products and sums, m of them in the second layer, and one for the bias:
    predictions are off by gamma(d + m + 8) times |X| |U|^T |W|^T, entry by entry. Squares are rounded once, and added
    up exactly or nearly so.
    """
    data, U, W = problem.datafit, _neurons(weights), weights.output
    assert data.shift is not None
    b = torch.zeros_like(data.shift) if weights.output_bias is None else weights.output_bias - data.shift
    P = (problem.X @ U.T).clamp(min=0) @ W.T
    sizes = (problem.X.abs() @ U.abs().T) @ W.abs().T
    error = gamma(sum(U.shape) + 8) * length(sizes) + gamma(2) * length(b) * len(P) ** 0.5
    squares = torch.cat([U.flatten(), W.flatten()]).square()
    most = replace(data, intercept=False).upper_bound(P + b, rounded_up(error))
    price = 0.5 * problem.beta * largest_sum(squares) * (1 + gamma(8)) + squares.numel() * TINY * (1 + problem.beta)
    decay = 0.5 * problem.beta * min(float(squares.sum()), sys.float_info.max)
    value = data.value_at(P, b) + decay
    if not (math.isfinite(value) and math.isfinite(most + price)):
        return _Objective((1 - 1e-9) * decay, math.inf, data.grad(P))  # losses are not negative
    most = rounded_up(most + price) if most or bool(squares.any()) else 0.0
    return _Objective(value - 2 * (most - value) - 1e-12 * value, most, data.grad(P))


def _neurons(weights: TwoLayerWeights) -> Float[Tensor, "m d"]:
    """The hidden weights, with the bias as one column more."""
    if weights.hidden_bias is None:
        return weights.hidden
    return torch.cat([weights.hidden, weights.hidden_bias[:, None]], 1)


def _samples(X: ArrayLike, weights: TwoLayerWeights) -> Float[Tensor, "n d"]:
    plain = as_plain_array(X)
    if issparse(plain):
        full = full_samples(from_scipy(plain), "certify on fewer samples, which is valid for them")
        plain = full.numpy()
    array = _numbers("X", plain, np.float64)
    if array.ndim != 2 or not len(array) or array.shape[1] != weights.n_features:
        raise ValueError(f"X must have shape (n, {weights.n_features}) for this network, got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError("X must be finite, got NaN or infinity; drop or impute those samples.")
    check_magnitude("X", array)
    samples = torch.tensor(array)
    return samples if weights.hidden_bias is None else with_constant(samples)


def _numbers(name: str, values: ArrayLike, dtype: type | None) -> np.ndarray:
    """An array of a tensor, a list or anything else that numpy takes."""
    try:
        return np.asarray(as_plain_array(values), dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({one_line(error)}).") from error


class _Targets(NamedTuple):
    """One row per sample; where they come from labels, the classes with their weights and the place of each label."""

    Y: np.ndarray
    class_weight: ClassWeight = None
    classes: np.ndarray = np.empty(0)
    codes: np.ndarray = np.empty(0, dtype=np.intp)


def _targets(
    y: ArrayLike, weights: TwoLayerWeights, loss: Loss, classes: ArrayLike | None, class_weight: ClassWeight
) -> _Targets:
    """Numbers with one column per output as they are, everything else as labels."""
    values = _numbers("y", as_targets(y), None)
    numeric = values.dtype.kind in "iufb"
    labels = classes is not None or not numeric or loss.classification or weights.n_outputs > 1
    if values.ndim == 1 and labels:
        known, codes = class_codes(values, weights.n_outputs, classes)
        return _Targets(loss.encode(codes, weights.n_outputs), class_weight, known, codes)
    if class_weight is not None:
        raise ValueError("class_weight is for labels, one per sample, but y holds numbers; use sample_weight.")
    return _Targets(number_targets(values, weights.n_outputs))
