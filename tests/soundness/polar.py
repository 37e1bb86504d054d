"""Bounds of polars, held against the steepest neuron that a long search finds: adversarial samples and dual points."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.numerics.norms import NORMS, Norm
from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.papers.methods.norm_oracles import NormFaces, NormSearch
from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.polar import DiagonalBound, Faces, NeuronOracle, Repeated, Sphere
from bidual.polar.exact.orthogonal_rows import polar_bound_orthogonal_rows
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.witness import ProductProof
from bidual.training.copositive.cones import PatternCones
from bidual.training.copositive.multipliers import feasible_multipliers
from soundness.cases import BREAKDOWNS, Bound, Issued, labels
from soundness.samples import HARD
from soundness.slopes import SLOPES
from soundness.steepest import directions_of, steepest


@dataclass(frozen=True)
class Asked:
    """Samples, a dual point, and where to look for steep neurons."""

    X: torch.Tensor
    V: torch.Tensor
    directions: ndarray

    def value(self, hidden: Norm = NORMS["l2"], output: Norm = NORMS["l2"]) -> np.longdouble:
        d = self.X.shape[1]
        creases = None if hidden.order == 2 or d == 1 else hidden.creases(d).numpy()
        norms = hidden.order, output.dual.order
        return steepest(self.X.numpy(), self.V.numpy(), self.directions, norms, creases)

    def with_neurons(self, neurons: torch.Tensor) -> "Asked":
        return Asked(self.X, self.V, np.concatenate([neurons[:40].numpy(), self.directions]))


@dataclass(frozen=True)
class Attack:
    """An oracle, the sizes at which it is asked, and how often.

    Attributes:
        sizes: the most samples for data of rank 1, 2, 3, ...; beyond the list the oracle is not asked.
        weight: of the draw.
    """

    ask: Callable[[Generator, Asked], list[Bound]]
    sizes: tuple[int, ...]
    weight: float = 1.0


def _asked(name: str, oracle: NeuronOracle, rng: Generator, asked: Asked) -> list[Bound]:
    """The bound without a question, and what it is if only what exceeds some value matters."""
    found = oracle.steepest(asked.V)
    there = asked.with_neurons(found.neurons)
    value = there.value(oracle.hidden_norm, oracle.output_norm)
    bounds = [Bound(name, found.bracket.upper, value)]
    above = float(value) * float(rng.choice([0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0]))
    if 0 < above < np.inf and rng.random() < 0.5:
        bounds.append(Bound(name, oracle.steepest(asked.V, above).bracket.upper, value))
    return bounds


def _plain(name: str, make: Callable[[torch.Tensor], NeuronOracle]) -> Callable[[Generator, Asked], list[Bound]]:
    return lambda rng, asked: _asked(name, make(asked.X), rng, asked)


def _norms(rng: Generator, asked: Asked) -> list[Bound]:
    hidden, output = (NORMS[str(name)] for name in rng.choice(list(NORMS), 2))
    return _asked("NormFaces", NormFaces(asked.X, hidden, output), rng, asked)


def _norm_search(rng: Generator, asked: Asked) -> list[Bound]:
    hidden, output = (NORMS[str(name)] for name in rng.choice(list(NORMS), 2))
    euclidean = Faces(asked.X) if rng.random() < 0.5 else DiagonalBound(asked.X, steps=5)
    return _asked("NormSearch", NormSearch(asked.X, hidden, output, euclidean, 32, 10), rng, asked)


def _orthogonal(rng: Generator, asked: Asked) -> list[Bound]:
    """On the samples as they are, or on as many orthogonal rows of their lengths, where the bound may be exact."""
    if rng.random() < 0.7:
        some = asked.V[:24].numpy()
        frame = np.linalg.qr(rng.standard_normal((len(some) + int(rng.integers(0, 3)), len(some))))[0].T
        X = frame * torch.linalg.vector_norm(asked.X[:24], dim=1, keepdim=True).numpy()
        asked = Asked(torch.from_numpy(X), asked.V[:24], directions_of(rng, X, some, some.T @ X))
    return [Bound("orthogonal rows", polar_bound_orthogonal_rows(asked.X, asked.V), asked.value())]


def _products(rng: Generator, asked: Asked) -> list[Bound]:
    """Multipliers after a few steps, of rows or of clusters, with signs of outputs or without; then in halves of cells,
    as they were inherited, and at another dual point."""
    oracle = ProductBound(
        asked.X,
        steps=int(rng.integers(1, 12)),
        per_row=int(rng.integers(1, 20)),
        dense=int(rng.choice([3, 600])),
        clusters=int(rng.integers(2, 8)),
        most_outputs=int(rng.choice([0, 3])),
        starts=8,
    )
    bounds = _asked("ProductBound", oracle, rng, asked)
    rows = oracle.lengths[:, None] * asked.V
    norm = float(torch.linalg.vector_norm(rows))
    if not 1e-100 < norm < 1e100:
        return bounds
    cells = oracle.start(rows / norm)
    for _ in range(int(rng.integers(1, 4))):
        cells = cells.split(rows / norm, (int(rng.integers(len(cells.places))),), 0.1)
    proof = ProductProof(asked.X, oracle.proofs(cells))
    there = Asked(asked.X, torch.from_numpy(rng.standard_normal(asked.V.shape)), asked.directions)
    return [*bounds, *(Bound("ProductProof", proof.steepest(at.V).bracket.upper, at.value()) for at in (asked, there))]


def _repeated(rng: Generator, asked: Asked) -> list[Bound]:
    """Some samples more than once, with dual rows that cancel up to a little, or not."""
    twins = torch.from_numpy(rng.integers(0, len(asked.X), int(rng.integers(1, len(asked.X) + 1))))
    apart = torch.from_numpy(rng.standard_normal(len(twins)) * rng.choice([0.0, 1e-16, 1e-9, 1.0]))
    V = torch.cat([asked.V, (apart - 1)[:, None] * asked.V[twins]]) * 2.0 ** int(rng.integers(-60, 61))
    again = Asked(torch.cat([asked.X, asked.X[twins]]), V, asked.directions)
    make = Faces if rng.random() < 0.7 else lambda X: ProductBound(X, steps=3, per_row=5, starts=8)
    return _asked("Repeated", Repeated(again.X, make), rng, again)


def _cones(rng: Generator, asked: Asked) -> list[Bound]:
    """Multipliers that are zero, drawn, or made for the question, at a beta near what can be proved or anywhere."""
    cones, value = PatternCones.of(asked.X), asked.value()
    p, f, _ = cones.facets.shape
    beta = float(value) * float(rng.choice([0.5, 1 - 1e-9, 1.0, 1 + 1e-12, 1.1])) or 1.0
    level = min(beta / cones.scaled.size, 1e150) ** 2
    drawn = rng.random((p, f, f)) * level * 10.0 ** rng.uniform(-6, 3)
    V = asked.V.numpy()
    options = [np.zeros((p, f, f)), drawn]
    if len(cones) and 0 < level < np.inf:
        options.append(cones.capped(V, feasible_multipliers(cones.forms(V), cones.facets, cones.inside, level), beta))
    return [Bound("PatternCones", cones.polar(asked.V, N, beta), value) for N in options]


ATTACKS: dict[str, Attack] = {
    "Faces": Attack(_plain("Faces", Faces), (40, 400, 24, 12, 8), 3.0),
    "Sphere": Attack(_plain("Sphere", lambda X: Sphere(X, tol=1e-9, max_simplices=1500)), (40, 200, 60, 40, 30), 2.0),
    "DiagonalBound": Attack(_plain("DiagonalBound", lambda X: DiagonalBound(X, steps=8)), (40, 200, 200, 200, 200)),
    "ProductBound": Attack(_products, (40, 100, 100, 100, 100), 2.0),
    "Repeated": Attack(_repeated, (40, 100, 24, 12, 8)),
    "SemidefiniteBound": Attack(
        _plain("SemidefiniteBound", lambda X: SemidefiniteBound(X, tol=1e-9, max_steps=150)), (12, 20, 20, 20, 20)
    ),
    "BranchAndBound": Attack(
        _plain("BranchAndBound", lambda X: BranchAndBound(X, 6, 0.4, 1e-9, 100)), (8, 12, 12, 12, 12)
    ),
    "NormFaces": Attack(_norms, (40, 40, 12), 2.0),
    "NormSearch": Attack(_norm_search, (40, 40, 12), 0.5),
    "PatternCones": Attack(_cones, (12, 24, 10), 1.5),
    "orthogonal rows": Attack(_orthogonal, (40, 100, 100, 100, 100), 1.0),
}


def polar_case(rng: Generator) -> Iterator[Issued]:
    """One oracle, and a few dual points for the same samples."""
    names = list(ATTACKS)
    weights = np.array([ATTACKS[name].weight for name in names])
    name = str(rng.choice(names, p=weights / weights.sum()))
    attack, kind = ATTACKS[name], str(rng.choice(list(HARD)))
    rank = int(rng.integers(0, len(attack.sizes)))
    n = int(np.ceil(attack.sizes[rank] ** rng.uniform(0, 1)))
    X, slopes = _in_units(rng, HARD[kind](rng, n, rank + 1)), str(rng.choice(list(SLOPES)))
    for _ in range(2):
        c = int(rng.integers(1, 4))
        yield _attacked(rng, name, kind, slopes, *SLOPES[slopes](rng, X, c))


def _in_units(rng: Generator, X: ndarray) -> ndarray:
    """Sometimes far from one, turned into more dimensions than it has rank, or with rows of any length."""
    if rng.random() < 0.3 and X.shape[1] < 5:
        X = X @ np.linalg.qr(rng.standard_normal((X.shape[1] + 2, X.shape[1])))[0].T
    if rng.random() < 0.3:
        X = X * 2.0 ** int(rng.integers(-300, 300))
    return X


def _attacked(rng: Generator, name: str, kind: str, slopes: str, X: ndarray, V: ndarray) -> Issued:
    told = labels(architecture="polar", oracle=name, data=kind, slopes=slopes, scope="ALL_PATTERNS")
    issued = Issued(told)
    asked = Asked(torch.from_numpy(X), torch.from_numpy(V), directions_of(rng, X, V))
    try:
        issued.bounds = ATTACKS[name].ask(rng, asked)
    except BREAKDOWNS as error:
        issued.refused = type(error).__name__
    return issued
