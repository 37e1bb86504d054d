"""The problems of the race as plain arrays. NumPy only: every peer's environment imports this file."""

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TEACHER, _OUTPUTS, _NOISE = 10, 5, 0.1
_CORRELATION, _FREEDOM = 0.9, 2.5


@dataclass(frozen=True)
class Spec:
    """One problem, from which its arrays follow.

    Attributes:
        n, d, patterns, c: samples, features, gates and outputs.
        fraction: the weight decay as a share of the smallest one whose optimum is zero.
        loss: squared, logistic or softmax; a sum over samples, the squared one with 1/2.
        penalty: per_output, frobenius or nuclear, of the block of each gate.
        features: gaussian, shifted (non-negative), correlated (0.9 between any two) or heavy (Student t).
        network: gated, or relu with the cone of every pattern.
        data: teacher (ten ReLU neurons and noise) or spiral (three arms in the plane).
        beta: the weight decay itself, instead of ``fraction``.
        path: how many weight decays, from the largest down to ``fraction`` in equal ratios; 0 is ``fraction`` alone.
    """

    n: int
    d: int
    patterns: int
    c: int = 1
    fraction: float = 0.1
    loss: str = "squared"
    penalty: str = "per_output"
    features: str = "gaussian"
    seed: int = 0
    network: str = "gated"
    data: str = "teacher"
    beta: float | None = None
    path: int = 0

    @property
    def label(self) -> str:
        """What a table calls it."""
        size = f"n={self.n} d={self.d} P={self.patterns} c={self.c}"
        decay = f"beta={self.beta:g}" if self.beta is not None else f"lam={self.fraction:g}"
        odd = "" if self.features == "gaussian" else f" {self.features}"
        source = " spiral" if self.data == "spiral" else ""
        long = f" path of {self.path}" if self.path else ""
        return f"{self.network} {self.loss} {self.penalty}{source}{odd}{long}, {size}, {decay}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tiny(self) -> Self:
        """The same kind of problem, small: solved once before the clock starts, so that everything is loaded."""
        spiral = self.data == "spiral"
        return replace(self, n=30 if spiral else 100, d=2 if spiral else 5, patterns=10 if spiral else 60)


class Arrays(NamedTuple):
    """Samples X (n, d), targets Y (n, c), patterns (n, P), and the gates (d, P) that make them."""

    X: Array
    Y: Array
    mask: NDArray[np.bool_]
    gates: Array


def make_arrays(spec: Spec) -> Arrays:
    if spec.data == "spiral":
        return _spiral(spec)
    rng = np.random.default_rng(spec.seed)
    X = _features(spec, rng.standard_normal((spec.n, spec.d)))
    W = rng.standard_normal((spec.d, _TEACHER)) / np.sqrt(spec.d)
    V = rng.standard_normal((_TEACHER, _OUTPUTS)) / np.sqrt(_TEACHER)
    Y = np.maximum(X @ W, 0) @ V + _NOISE * rng.standard_normal((spec.n, _OUTPUTS))
    gates = _distinct_gates(X, spec.patterns, rng)
    return Arrays(X, _targets(spec, Y / Y.std(axis=0)), X @ gates > 0, gates)


def _features(spec: Spec, X: Array) -> Array:
    rng = np.random.default_rng([spec.seed, 1])  # another stream: Gaussian problems stay what they are
    if spec.features == "shifted":
        return X - X.min(axis=0)
    if spec.features == "correlated":
        return np.sqrt(_CORRELATION) * rng.standard_normal((spec.n, 1)) + np.sqrt(1 - _CORRELATION) * X
    if spec.features == "heavy":
        return rng.standard_t(_FREEDOM, X.shape)
    if spec.features != "gaussian":
        raise ValueError(f"features must be gaussian, shifted, correlated or heavy, got {spec.features!r}.")
    return X


def _targets(spec: Spec, Y: Array) -> Array:
    if spec.loss == "logistic":
        return np.where(Y[:, :1] > np.median(Y[:, :1]), 1.0, -1.0)
    if spec.loss == "softmax":
        return np.eye(spec.c)[Y[:, : spec.c].argmax(axis=1)]
    if spec.loss != "squared":
        raise ValueError(f"loss must be squared, logistic or softmax, got {spec.loss!r}.")
    return np.ascontiguousarray(Y[:, : spec.c])


def _distinct_gates(X: Array, count: int, rng: np.random.Generator) -> Array:
    """The first ``count`` random gates whose patterns differ and are on somewhere; normal data need no second draw."""
    gates = np.empty((X.shape[1], 0))
    for _ in range(100):
        gates = np.hstack([gates, rng.standard_normal((X.shape[1], count))])
        kept = _first_of_each(X @ gates > 0)
        if len(kept) >= count:
            return gates[:, kept[:count]]
    raise ValueError(f"{count} distinct patterns were not found on {X.shape} samples; ask for fewer.")


def _first_of_each(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Columns with patterns not seen before, in order, without the one that is off everywhere."""
    _, first = np.unique(mask, axis=1, return_index=True)
    return np.array(sorted(j for j in first if mask[:, j].any()), dtype=np.int64)


def _spiral(spec: Spec) -> Arrays:
    """Three arms with one-hot labels (BM section 4.1); sampled gates that repeat a pattern are dropped."""
    m, rng = spec.n // spec.c, np.random.default_rng(0)
    radius, arms = np.linspace(0.05, 1, m), []
    for j in range(spec.c):
        angle = np.linspace(4 * j, 4 * (j + 1), m) + 0.2 * rng.standard_normal(m)
        arms.append(np.column_stack([radius * np.sin(angle), radius * np.cos(angle)]))
    X, Y = np.vstack(arms), np.eye(spec.c)[np.repeat(np.arange(spec.c), m)]
    gates = np.random.default_rng(spec.seed).standard_normal((2, spec.patterns))
    gates = gates[:, _first_of_each(X @ gates > 0)]
    return Arrays(X, Y, X @ gates > 0, gates)


def make_betas(spec: Spec, arrays: Arrays) -> tuple[float, ...]:
    """The weight decays to solve for, largest first, in the papers' scaling: a sum over samples."""
    if spec.beta is not None:
        return (spec.beta,)
    top = beta_max(spec, arrays)
    if spec.path:
        return tuple(float(beta) for beta in top * np.geomspace(1.0, spec.fraction, spec.path))
    return (spec.fraction * top,)


def beta_max(spec: Spec, arrays: Arrays) -> float:
    """The polar of the loss's gradient at zero: from here on, the zero network is optimal (of the gated network)."""
    X, Y, mask, _ = arrays
    slope = {"squared": Y, "logistic": Y / 2, "softmax": Y - 1 / Y.shape[1]}[spec.loss]
    G = np.stack([mask.T @ (X * slope[:, k : k + 1]) for k in range(Y.shape[1])], axis=2)
    if spec.penalty == "per_output":
        return float(np.linalg.norm(G, axis=1).max())
    if spec.penalty == "frobenius":
        return float(np.linalg.norm(G, axis=(1, 2)).max())
    if spec.penalty == "nuclear":
        return float(np.linalg.norm(G, ord=2, axis=(1, 2)).max())
    raise ValueError(f"penalty must be per_output, frobenius or nuclear, got {spec.penalty!r}.")


def design(arrays: Arrays) -> Array:
    """[D_1 X ... D_P X], the explicit (n, P d) matrix that group lasso libraries are given, by columns."""
    X, mask = arrays.X, arrays.mask
    return np.asfortranarray((mask[:, :, None] * X[:, None, :]).reshape(len(X), -1))
