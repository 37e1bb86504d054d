"""How far a two-layer ReLU network, trained by anybody, is from the best one there is."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures import ReluMLP
from bidual.breakdown import breakdown_said, check_magnitude
from bidual.certificate import Certificate, SoundnessError
from bidual.column_generation import Training
from bidual.datafit import Datafit
from bidual.estimators.base import is_number
from bidual.estimators.network import check_patterns
from bidual.foreign import Network, TwoLayerWeights, class_targets, number_targets, read_network
from bidual.json_text import shortly
from bidual.losses import LOSSES, Logistic, Loss, MarginLoss, Softmax
from bidual.networks import RebuildableModule
from bidual.norms import L2
from bidual.patterns import with_constant
from bidual.relu import ReluProblem
from bidual.relu_training import ReluTrainer


@dataclass(frozen=True, eq=False)
class NetworkCertificate:
    """Bounds on how much better than a given network any other of its kind can be.

    Attributes:
        objective: of the network as it is: sum of losses + beta/2 times the sum of squares of its weights, hidden
            biases included, output biases not.
        lower_bound: no two-layer ReLU network of any width has a smaller objective.
        relative_gap: (objective - lower_bound) / objective.
        certificate: the witness of the lower bound, at the best network that was found on the way.
        better: that network, if its objective is smaller than the given one's; None otherwise.
        better_objective: its objective, or that of the given network.
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
    loss: str | Loss = "squared",
    *,
    tol: float = 1e-4,
    max_time: float | None = None,
    patterns: int | str = "auto",
) -> NetworkCertificate:
    """Bound the objective of a two-layer ReLU network from below, over all networks of its kind and any width.

    Two dual points are tried: the network's own residual, and that of the best network found by training on from its
    neurons. Neither is trusted: what counts is the certified bound that it gives (CP eq. 11).

    Args:
        network: a ``torch.nn.Sequential(Linear, ReLU, Linear)``, a fitted ``MLPRegressor`` or ``MLPClassifier``, an
            estimator of this package, or a file (.safetensors, .onnx, .pt2). A layer without bias competes with
            networks without that bias.
        X: the samples it was trained on.
        y: their targets (n,) or (n, c), or labels.
        beta: the weight decay, in the scaling of a sum over samples. One that it was not trained with gives a larger
            gap, nothing worse.
        loss: "squared", "log_loss" (logistic, or softmax with several outputs), another name in
            ``bidual.losses.LOSSES``, or a Loss.
        tol: the relative gap at which training for a better bound stops.
        max_time: a limit in seconds on that.
        patterns: as in :class:`bidual.ConvexMLPClassifier`.
    """
    _check_settings(beta, tol, max_time, patterns)
    weights = read_network(network)
    chosen = _loss(loss, weights.n_outputs)
    samples = _samples(X, weights)
    Y = torch.from_numpy(_targets(y, weights, chosen, getattr(network, "classes_", None)))
    if len(Y) != len(samples):
        raise ValueError(f"X has {len(samples)} samples and y has {len(Y)}; they must be as many.")
    problem = ReluProblem(samples, Datafit(chosen, Y, intercept=weights.output_bias is not None), float(beta))
    trainer = ReluTrainer(samples, patterns)
    with breakdown_said():
        return _certify(weights, problem, trainer, tol, max_time)


def _check_settings(beta: float, tol: float, max_time: float | None, patterns: int | str) -> None:
    if not (is_number(beta) and 0 < beta < np.inf):
        raise ValueError(f"beta must be positive and finite, got {beta!r}.")
    if not (is_number(tol) and 0 < tol < 1):
        raise ValueError(f"tol must be between 0 and 1, got {tol!r}.")
    if max_time is not None and not (is_number(max_time) and max_time > 0):
        raise ValueError(f"max_time must be None or positive, got {max_time!r}.")
    check_patterns(patterns, "relu")


def _certify(
    weights: TwoLayerWeights, problem: ReluProblem, trainer: ReluTrainer, tol: float, max_time: float | None
) -> NetworkCertificate:
    neurons = _neurons(weights)
    objective, V = _objective(weights, problem, neurons)
    done = trainer.train(problem, tol=tol, max_time=max_time, start=L2.unit(neurons[neurons.any(1)]), candidates=(V,))
    certificate = done.solution.certificate
    if certificate.dual > objective * (1 + 1e-8):
        raise SoundnessError(f"lower bound {certificate.dual!r} exceeds {objective!r}; please report this network.")
    improved = certificate.primal < objective * (1 - 1e-12)
    return NetworkCertificate(
        objective,
        certificate.dual,
        max(objective - certificate.dual, 0.0) / objective if objective > 0 else 0.0,
        certificate,
        _module(done, weights.hidden_bias is not None) if improved else None,
        min(certificate.primal, objective),
        _status(done, tol),
    )


def _status(done: Training, tol: float) -> str:
    gap = done.solution.certificate.relative_gap
    if gap <= tol:
        return f"the best network that was found is optimal up to {gap:.1e}"
    return done.solution.status.value


def _objective(weights: TwoLayerWeights, problem: ReluProblem, neurons: Tensor) -> tuple[float, Tensor]:
    """The network's own objective, at its own output bias and scaling, and the gradient of its data term."""
    data = problem.datafit
    assert data.shift is not None
    P = (problem.X @ neurons.T).clamp(min=0) @ weights.output.T
    b = data.shift.new_zeros(weights.n_outputs) if weights.output_bias is None else weights.output_bias - data.shift
    decay = 0.5 * float(neurons.square().sum() + weights.output.square().sum())
    return data.value_at(P, b) + problem.beta * decay, data.grad(P)


def _neurons(weights: TwoLayerWeights) -> Float[Tensor, "m d"]:
    """The hidden weights, with the bias as one column more."""
    if weights.hidden_bias is None:
        return weights.hidden
    return torch.cat([weights.hidden, weights.hidden_bias[:, None]], 1)


def _module(done: Training, bias: bool) -> RebuildableModule:
    Z = done.solution.Z
    return ReluMLP(done.neurons, bias).decode(Z, done.problem.predictions(Z)[1])


def _loss(loss: str | Loss, n_outputs: int) -> Loss:
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss == "log_loss":
        return Logistic() if n_outputs == 1 else Softmax()
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss must be 'log_loss', a Loss, or one of {sorted(LOSSES)}, got {loss!r}.")
    return LOSSES[loss]()


def _samples(X: ArrayLike, weights: TwoLayerWeights) -> Float[Tensor, "n d"]:
    array = _numbers("X", X, np.float64)
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
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({shortly(error)}).") from error


def _targets(y: ArrayLike, weights: TwoLayerWeights, loss: Loss, classes: ArrayLike | None) -> np.ndarray:
    """Numbers with one column per output as they are, everything else as labels."""
    values = _numbers("y", y, None)
    numeric = values.dtype.kind in "iufb"
    labels = classes is not None or not numeric or isinstance(loss, (MarginLoss, Softmax)) or weights.n_outputs > 1
    if values.ndim == 1 and labels:
        return class_targets(values, weights.n_outputs, loss, classes)
    return number_targets(values, weights.n_outputs)
