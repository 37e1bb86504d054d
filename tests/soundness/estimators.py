"""What the public face says of itself: the certificates of estimators, against the networks that they hand out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual import (
    ConvexAttentionRegressor,
    ConvexCNNRegressor,
    ConvexMLPClassifier,
    ConvexMLPRegressor,
    ConvexParallelRegressor,
)
from bidual.losses.datafit import Datafit
from bidual.patterns import with_constant
from bidual.polar import Faces, NeuronOracle
from bidual.polar.base import oracle_for
from bidual.problems.certificate import Certificate, Scope
from bidual.problems.problem import Problem
from bidual.training.parallel.plan import ParallelPlan
from oracles.explicit_readouts import image_rows
from soundness.cases import BREAKDOWNS, Fit, Issued, labels, sample_weights
from soundness.extended import LOSSES, wide
from soundness.samples import kind_of, samples, targets

_SECONDS = 0.4
_ROUNDING = np.longdouble(2.0) ** -46
_LENGTHS = (1.0, 0.0, 0.5, 0.99, 1.01, 1.5)  # of output weights and bias, relative to the network's
Read = Callable[[Any, ndarray], tuple[ndarray, np.longdouble, np.longdouble]]


@dataclass(frozen=True)
class Family:
    """An estimator, the shape of its samples, and its network by hand: predictions, price, and how large terms are."""

    make: Callable[..., Any]
    shape: tuple[int, ...]
    activations: tuple[str, ...]
    read: Read


def _on(scores: ndarray, sizes: ndarray) -> ndarray:
    """What the gates say in double precision, ties being on."""
    return scores >= -1e-13 * sizes


def _two_layers(hidden: ndarray, U: ndarray, W: ndarray, bias: ndarray) -> tuple[ndarray, np.longdouble, np.longdouble]:
    """From what neurons make of every sample (n, features of the output layer)."""
    size = np.abs(hidden) @ np.abs(W).T
    return hidden @ W.T + bias, ((U**2).sum() + (W**2).sum()) / 2, size.max(initial=0) + np.abs(bias).max(initial=0)


def _numbers(*tensors: torch.Tensor) -> list[ndarray]:
    return [wide(tensor.detach().numpy()) for tensor in tensors]


def _mlp(module: Any, X: ndarray) -> tuple[ndarray, np.longdouble, np.longdouble]:
    U, a, W, b = _numbers(module.hidden.weight, module.hidden.bias, module.output.weight, module.output.bias)
    seen, rows = wide(X) @ U.T + a, np.column_stack([U, a])
    if hasattr(module, "gates"):
        G, h = (part.detach().numpy() for part in (module.gates.weight, module.gates.bias))
        on = _on(X @ G.T + h, np.abs(X) @ np.abs(G).T + np.abs(h))[:, module.gate_index.numpy()]
        return _two_layers(seen * on, rows, W, b)
    return _two_layers(seen if module.kind == "linear_mlp" else np.maximum(seen, 0), rows, W, b)


def _cnn(module: Any, X: ndarray) -> tuple[ndarray, np.longdouble, np.longdouble]:
    """One dimension, pooled by averages over windows."""
    U, a, W, b = _numbers(module.hidden.weight, module.hidden.bias, module.output.weight, module.output.bias)
    rows = image_rows(torch.from_numpy(X), (U.shape[2],), (1,), (0,), (1,)).numpy()
    flat = U.reshape(len(U), -1)
    seen = (wide(rows) @ flat.T + a).reshape(len(X), -1, len(U))
    if hasattr(module, "gates"):
        G, h = (part.detach().numpy() for part in (module.gates.weight.flatten(1), module.gates.bias))
        on = _on(rows @ G.T + h, np.abs(rows) @ np.abs(G).T + np.abs(h))
        seen = seen * on.reshape(len(X), seen.shape[1], -1)[:, :, module.gate_index.numpy()]
    else:
        seen = np.maximum(seen, 0)
    windows = seen.reshape(len(X), -1, module.window[0], len(U)).mean(2)
    return _two_layers(windows.transpose(0, 2, 1).reshape(len(X), -1), np.column_stack([flat, a]), W, b)


def _attention(module: Any, X: ndarray) -> tuple[ndarray, np.longdouble, np.longdouble]:
    """Averaged over tokens."""
    U, V, b = _numbers(module.mixing, module.value, module.bias)
    scores = np.einsum("npd,jde,nqe->njpq", wide(X), U, wide(X))
    if hasattr(module, "gates"):
        H = module.gates.numpy()
        on = [np.einsum("npd,kde,nqe->nkpq", x, g, x) for x, g in ((X, H), (np.abs(X), np.abs(H)))]
        scores = scores * _on(*on)[:, module.gate_index.numpy()]
    elif module.kind == "relu_attention":
        scores = np.maximum(scores, 0)
    seen = np.einsum("njpq,nqe->nje", scores, wide(X)) / X.shape[1]
    return _two_layers(seen.reshape(len(X), -1), U, V.reshape(-1, V.shape[2]).T, b)


def _parallel(module: Any, X: ndarray) -> tuple[ndarray, np.longdouble, np.longdouble]:
    """The path norm is the root of the sum over paths of squared products, added up over sub-networks."""
    *hidden, last = _numbers(*module.layers)
    h = wide(np.column_stack([X, np.ones(len(X))]) if module.constant else X)
    paths = np.ones((last.shape[0], 1, h.shape[1]), dtype=np.longdouble)
    for layer in hidden:
        h, paths = np.maximum(h @ layer, 0), paths @ layer**2
    outputs = (h @ last).sum(0) + _numbers(module.bias)[0]
    size = (np.abs(h) @ np.abs(last)).max(initial=0) + np.abs(outputs).max(initial=0)
    return outputs, np.sqrt((paths @ last**2).sum((1, 2))).sum(), size


FAMILIES: dict[str, Family] = {
    "ConvexMLPRegressor": Family(ConvexMLPRegressor, (2,), ("relu", "gated_relu", "linear"), _mlp),
    "ConvexMLPClassifier": Family(ConvexMLPClassifier, (2,), ("relu", "gated_relu", "linear"), _mlp),
    "ConvexCNNRegressor": Family(ConvexCNNRegressor, (1, 4), ("relu", "gated_relu"), _cnn),
    "ConvexAttentionRegressor": Family(ConvexAttentionRegressor, (2, 2), ("relu", "gated_relu", "linear"), _attention),
    "ConvexParallelRegressor": Family(ConvexParallelRegressor, (1,), ("relu",), _parallel),
}


def estimator_case(rng: Generator) -> Iterator[Issued]:
    """One fit of one estimator."""
    name, kind = str(rng.choice(list(FAMILIES))), kind_of(rng, double=True)
    loss = str(rng.choice(["squared", "huber", "absolute", "quantile", "poisson"]))
    parallel = name == "ConvexParallelRegressor"
    family, n = FAMILIES[name], int(rng.integers(2, 4) if parallel else rng.integers(3, 9))
    X = samples(rng, kind, n, int(np.prod(family.shape)), double=True).reshape(n, *family.shape)
    if name == "ConvexMLPClassifier":
        loss = str(rng.choice([known for known in LOSSES if known not in ("softmax", "poisson", "quantile")]))
    y, Y = _targets(rng, name, loss, n)
    fit = Fit(loss, Y, sample_weights(rng, n), bool(rng.random() < 0.6))
    activation = str(rng.choice(family.activations))
    options: dict[str, Any] = {"widths": 2} if parallel else {}
    options |= {"kernel_size": 2} if name == "ConvexCNNRegressor" else {}
    options |= {} if name == "ConvexAttentionRegressor" else {"hidden_bias": bool(rng.random() < 0.5)}
    options |= {"n_subnetworks" if parallel else "n_gates": 4} if activation == "gated_relu" else {}
    tol = float(rng.choice([1e-2, 1e-6]))
    model = family.make(
        activation=activation, loss=loss, tol=tol, max_time=_SECONDS, fit_intercept=fit.intercept, **options
    )
    told = labels(
        architecture=name,
        loss=loss,
        gauge="path norm" if parallel else "weight decay",
        solver=activation,
        dtype=torch.float64,
        scope="ALL_PATTERNS" if activation == "relu" else "BLOCKS",
        data=kind,
    )
    issued = Issued(told)
    try:
        model.fit(X, y, fit.weight)
    except (ValueError, *BREAKDOWNS) as error:
        issued.refused = type(error).__name__
        yield issued
        return
    claimed, others = _claimed(family, model, fit, X)
    issued.certificates, issued.attained = [claimed], others
    issued.false = [] if _rechecked(model, fit, X) else ["the certificate can be rechecked"]
    yield issued


def _targets(rng: Generator, name: str, loss: str, n: int) -> tuple[ndarray, ndarray]:
    """What is given to fit, and the matrix that it stands for."""
    if name != "ConvexMLPClassifier":
        Y = targets(rng, loss, n, 1 if name == "ConvexParallelRegressor" else int(rng.integers(1, 3)))
        return (Y[:, 0] if Y.shape[1] == 1 else Y), Y
    y = np.arange(n) % 2
    return y, np.where(y == 1, 1.0, -1.0)[:, None]


def _claimed(
    family: Family, model: Any, fit: Fit, X: ndarray
) -> tuple[tuple[Certificate, np.longdouble], list[np.longdouble]]:
    """The certificate, widened by what rounding of the network's weights can change, and the network's objective; and
    those of the network with other lengths of its output weights, zero among them, for which hidden ones make up."""
    P, price, size = family.read(model.module_, X)
    exact = Datafit(model.loss_, torch.from_numpy(fit.Y))
    value, *others = (fit.value_at(t * P, exact) + wide(model.beta_) * t * price for t in wide(np.array(_LENGTHS)))
    size = size + np.abs(fit.Y).max() + 1
    weight = wide(1.0 if fit.weight is None else fit.weight.sum())
    allowed = _ROUNDING * (len(X) * weight * size * size * (1 + wide(fit.delta)) + value)
    made = model.certificate_
    return (replace(made, primal=float(made.primal + allowed), dual=float(made.dual - allowed)), value), others


def _rechecked(model: Any, fit: Fit, X: ndarray) -> bool:
    weight = None if fit.weight is None else torch.from_numpy(fit.weight)
    datafit = Datafit(model.loss_, torch.from_numpy(fit.Y), weight, fit.intercept)
    operator = model.architecture_.lift(torch.from_numpy(X), fit.Y.shape[1])
    problem = Problem(operator, datafit, model.architecture_.gauge(), model.beta_)
    if model.certificate_.scope is Scope.BLOCKS:
        return bool(model.certificate_.recheck(problem))
    return bool(model.certificate_.recheck(problem, _oracle(model, torch.from_numpy(X), fit.Y.shape[1])))


def _oracle(model: Any, X: torch.Tensor, c: int) -> NeuronOracle:
    if isinstance(model, ConvexParallelRegressor):
        there = with_constant(X) if model.hidden_bias else X
        return ParallelPlan(there, model.widths).parallel_oracle(c)
    if hasattr(model, "_patches"):
        patches = model._patches(X)
        return oracle_for(patches.rows(), patches, Faces)
    return Faces(with_constant(X) if model.hidden_bias else X)
