"""Data that are hard on certificates, and the scales that they come in."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray
from numpy.random import Generator


def _plain(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, d))


def _ill_conditioned(rng: Generator, n: int, d: int) -> ndarray:
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    return left * 10.0 ** -np.linspace(0, rng.uniform(3, 10), len(right)) @ right


def _duplicated(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, d))[rng.integers(0, max(n // 2, 1), n)]


def _nearly_duplicated(rng: Generator, n: int, d: int) -> ndarray:
    return _duplicated(rng, n, d) * (1 + 10.0 ** rng.uniform(-15, -6) * rng.standard_normal((n, d)))


def _collinear(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, 1)) * rng.standard_normal((1, d))


def _deficient(rng: Generator, n: int, d: int) -> ndarray:
    rank = max(d - 1, 1)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))


def _whole_numbers(rng: Generator, n: int, d: int) -> ndarray:
    return rng.integers(-2, 3, (n, d)).astype(float)


def _with_zeros(rng: Generator, n: int, d: int) -> ndarray:
    X = rng.standard_normal((n, d))
    X[rng.integers(n)] = 0
    X[:, rng.integers(d)] *= rng.integers(2)
    return X


def _uneven(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-8, 8, (n, 1))


def _far_from_zero(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, d)) + 10.0 ** rng.uniform(2, 7)


KINDS: dict[str, Callable[[Generator, int, int], ndarray]] = {
    "plain": _plain,
    "ill conditioned": _ill_conditioned,
    "duplicated rows": _duplicated,
    "nearly duplicated rows": _nearly_duplicated,
    "collinear": _collinear,
    "rank deficient": _deficient,
    "whole numbers": _whole_numbers,
    "zero rows and columns": _with_zeros,
    "uneven rows": _uneven,
    "far from zero": _far_from_zero,
}


def _chained(rng: Generator, n: int, d: int) -> ndarray:
    """Rows a little apart from the one before, about as far as rows are that oracles take for one."""
    step = 10.0 ** rng.uniform(-12, -10) * rng.standard_normal(d)
    return rng.standard_normal(d) + np.arange(n)[:, None] * step


def _close_pairs(rng: Generator, n: int, d: int) -> ndarray:
    """Rows that are nearly parallel or nearly opposite, 1e-15 to 1e-9 apart, in pairs of any length."""
    X = rng.standard_normal((n, d))
    for i in range(1, n, 2):
        size = np.linalg.norm(X[i - 1]) * 10.0 ** rng.uniform(-15, -9)
        X[i] = rng.choice([-1.0, 1.0]) * (X[i - 1] + size * rng.standard_normal(d))
    return X


def _nearly_flat(rng: Generator, n: int, d: int) -> ndarray:
    """A last direction that is next to nothing, on either side of what counts as rank."""
    X = rng.standard_normal((n, d))
    X[:, -1] *= 10.0 ** rng.uniform(-14, -6)
    return X


def _pencils(rng: Generator, n: int, d: int) -> ndarray:
    """Rows that nearly lie in a few planes, so that many hyperplanes nearly meet in one ray."""
    frames = rng.standard_normal((max(n // 4, 1), 2, d))
    mixed = np.einsum("nk,nkd->nd", rng.standard_normal((n, 2)), frames[rng.integers(0, len(frames), n)])
    return mixed + 10.0 ** rng.uniform(-15, -8) * rng.standard_normal((n, d))


def _mirrored(rng: Generator, n: int, d: int) -> ndarray:
    half = rng.standard_normal(((n + 1) // 2, d))
    return np.concatenate([half, -half])[:n]


def _regular(rng: Generator, n: int, d: int) -> ndarray:
    """Directions at equal angles in a plane, whose forms have eigenvalues that agree."""
    angle = 2 * np.pi * np.arange(n) / n
    X = np.zeros((n, d))
    X[:, 0] = np.cos(angle)
    X[:, min(1, d - 1)] += np.sin(angle)
    return X


def _lengths_apart(rng: Generator, n: int, d: int) -> ndarray:
    return rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-12, 12, (n, 1))


def _denormal(rng: Generator, n: int, d: int) -> ndarray:
    """Numbers below the smallest normal one, among others that are just above."""
    return rng.standard_normal((n, d)) * 2.0 ** rng.uniform(-1040, -1000, (n, 1))


HARD = KINDS | {
    "chained": _chained,
    "close pairs": _close_pairs,
    "nearly flat": _nearly_flat,
    "pencils": _pencils,
    "mirrored": _mirrored,
    "regular": _regular,
    "lengths apart": _lengths_apart,
    "denormal": _denormal,
}


def samples(rng: Generator, kind: str, n: int, d: int, double: bool = False) -> ndarray:
    """Of single precision, so that problems in both precisions are the same problem, unless ``double``."""
    X = HARD[kind](rng, n, d)
    return X if double else X.astype(np.float32).astype(np.float64)


def kind_of(rng: Generator, double: bool) -> str:
    """A kind of samples; what single precision cannot tell apart, or does not hold, is for double precision only."""
    return str(rng.choice(list(HARD if double else KINDS)))


def targets(rng: Generator, loss: str, n: int, c: int) -> ndarray:
    """Random, constant, of one class, or far from zero."""
    scores = rng.standard_normal((n, c))
    if rng.random() < 0.15:
        scores[:] = scores[0]
    if loss == "softmax":
        return np.eye(c)[scores.argmax(1)]
    if loss in ("logistic", "hinge", "squared_hinge"):
        return np.where(scores >= 0, 1.0, -1.0)
    offset = 10.0 ** rng.uniform(0, 6) if rng.random() < 0.1 else 0.0
    if loss == "poisson":  # counts, or rates with zeros among them
        rates = np.where(scores < -0.5, 0.0, np.exp(3 * scores) + offset)
        return (np.floor(rates) if rng.random() < 0.6 else rates).astype(np.float32).astype(np.float64)
    return (2 * scores + offset).astype(np.float32).astype(np.float64)
