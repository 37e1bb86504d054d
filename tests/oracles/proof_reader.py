"""A second checker of proof files, for the scope BLOCKS: docs/proof_format.md in mpmath, without enclosures.

Numbers have 60 digits and matrices are numpy arrays of them, so that nothing here is shared with the checker: neither
its integers nor its rounding, its own logarithms, or its bounds of nuclear and spectral norms.
"""

import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf
from safetensors import safe_open

DIGITS = 60


def numbers(array: np.ndarray) -> np.ndarray:
    found = np.empty(array.shape, dtype=object)
    for place, value in np.ndenumerate(array):
        found[place] = mpf(float(value))
    return found


def length(A: np.ndarray) -> Any:
    return mpmath.sqrt(sum((x * x for x in A.ravel()), mpf(0)))


def singular_values(A: np.ndarray) -> list[Any]:
    return list(mpmath.svd_r(mpmath.matrix(A.tolist()), compute_uv=False))


def xlogx(x: Any) -> Any:
    return x * mpmath.log(x) if x > 0 else mpf(0)


def loss(name: str, s: Any, p: np.ndarray, y: np.ndarray) -> Any:
    r = p - y
    if name == "softmax":
        return mpmath.log(sum(mpmath.exp(x) for x in p)) - p @ y
    each = {
        "squared": lambda k: r[k] ** 2 / 2,
        "absolute": lambda k: abs(r[k]),
        "huber": lambda k: r[k] ** 2 / 2 if abs(r[k]) <= s else s * (abs(r[k]) - s / 2),
        "quantile": lambda k: max(-s * r[k], (1 - s) * r[k]),
        "hinge": lambda k: max(1 - y[k] * p[k], mpf(0)),
        "squared_hinge": lambda k: max(1 - y[k] * p[k], mpf(0)) ** 2 / 2,
        "logistic": lambda k: mpmath.log(1 + mpmath.exp(-y[k] * p[k])),
        "poisson": lambda k: mpmath.exp(p[k]) - y[k] * p[k] + xlogx(y[k]) - y[k],
    }[name]
    return sum(each(k) for k in range(len(p)))


def conjugate(name: str, s: Any, v: np.ndarray, y: np.ndarray) -> Any:
    """Infinite off the domain."""
    a, total = -y * v, v + y
    right = {
        "squared": True,
        "absolute": max(abs(v)) <= 1,
        "huber": s is not None and max(abs(v)) <= s,
        "quantile": s is not None and min(v) >= -s and max(v) <= 1 - s,
        "hinge": min(a) >= 0 and max(a) <= 1,
        "squared_hinge": min(a) >= 0,
        "logistic": min(a) >= 0 and max(a) <= 1,
        "softmax": min(total) >= 0 and abs(sum(total) - 1) < mpf(10) ** -50,
        "poisson": min(total) >= 0,
    }[name]
    if not right:
        return mpf("inf")
    if name in ("squared", "huber"):
        return v @ v / 2 + v @ y
    if name in ("absolute", "quantile"):
        return v @ y
    if name in ("hinge", "squared_hinge"):
        return -sum(a) + (a @ a / 2 if name == "squared_hinge" else 0)
    if name == "softmax":
        return sum(map(xlogx, total))
    if name == "logistic":
        return sum(xlogx(x) + xlogx(1 - x) for x in a)
    return sum(xlogx(t) - t - xlogx(k) + k for t, k in zip(total, y, strict=True))


class Reader:
    """A file with what its two bounds come to."""

    def __init__(self, path: Path, data: Path | None = None) -> None:
        self.raw: dict[str, np.ndarray] = {}
        for each in [path, *([] if data is None else [data])]:
            with safe_open(each, framework="np") as file:
                self.raw |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                metadata = file.metadata() or {}
            if each is path:
                self.about = json.loads(metadata["bidual"])["header"]
        self.table = {name: numbers(array) for name, array in self.raw.items() if name != "anchor"}
        self.Y, self.Z = self.table["targets"], self.table["point"]
        self.w = self.table.get("weight", numbers(np.ones(len(self.Y))))
        self.beta, self.s = self.table["beta"][()], self.table.get("loss_parameter", np.array(None))[()]

    @property
    def holds(self) -> bool:
        return self.primal() <= self.table["primal"][()] and self.dual() >= self.table["dual"][()]

    def primal(self) -> Any:
        P = self.forward() + self.table["offset"]
        rows = zip(self.w, P, self.Y, strict=True)
        return sum(w * loss(self.about["loss"], self.s, p, y) for w, p, y in rows) + self.beta * self.price()

    def forward(self) -> np.ndarray:
        kind, Z = self.about["map"], self.Z
        if kind == "dense":
            return (self.table["design"] @ Z.ravel()).reshape(self.Y.shape)
        if kind == "gated":
            return sum(D[:, None] * (self.table["X"] @ Zp) for D, Zp in zip(self.table["patterns"], Z, strict=True))
        return self.features() @ Z[:, 0]

    def features(self) -> np.ndarray:
        return np.maximum(self.table["X"] @ self.table["neurons"].T, mpf(0))

    def adjoint(self, V: np.ndarray) -> list[np.ndarray]:
        if self.about["map"] == "dense":
            return list((self.table["design"].T @ V.ravel()).reshape(self.Z.shape))
        if self.about["map"] == "gated":
            return [self.table["X"].T @ (D[:, None] * V) for D in self.table["patterns"]]
        return list((self.features().T @ V)[:, None, :])

    def price(self) -> Any:
        if self.about["map"] == "neurons":
            return sum(length(u) * length(z) for u, z in zip(self.table["neurons"], self.Z, strict=True))
        if self.about["gauge"] == "frobenius":
            return sum(map(length, self.Z))
        return sum(sum(singular_values(block)) for block in self.Z)

    def polar(self, V: np.ndarray) -> Any:
        G = self.adjoint(V)
        if self.about["map"] == "neurons":
            return max(length(g) / length(u) for u, g in zip(self.table["neurons"], G, strict=True))
        return max(length(g) if self.about["gauge"] == "frobenius" else max(singular_values(g)) for g in G)

    def dual_point(self) -> np.ndarray:
        V = self.table["dual_point"].copy()
        if self.about["loss"] == "softmax":
            for v, y in zip(V, self.Y, strict=True):
                own = int(np.argmax(y))
                v[own] = -(sum(v) - v[own])
        if self.about["intercept"]:
            missing = V.sum(0)
            for k, row in enumerate(self.raw["anchor"]):
                V[row, k] -= missing[k]
        return V

    def dual(self) -> Any:
        V = self.dual_point()
        rows = zip(self.w, V, self.Y, strict=True)
        value = -sum(w * conjugate(self.about["loss"], self.s, v / w, y) for w, v, y in rows)
        if not value > 0:
            return mpf(0)
        return value * min(self.beta / max(self.polar(V), mpf(10) ** -300), mpf(1))
