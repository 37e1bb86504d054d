"""Proof files: a certificate with its problem, for a checker that trusts neither this package nor floating point.

docs/proof_format.md specifies them; ``bidual.cli.bidual_check`` reads them.
"""

import hashlib
import math
import os
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from jaxtyping import Int
from torch import Tensor

from bidual.gauges import Gauge, Group, Nuclear
from bidual.losses import LOSSES, Loss
from bidual.losses.datafit import Datafit
from bidual.numerics.sparse import is_sparse
from bidual.operators import LiftedOperator, NeuronOperator
from bidual.operators.gated import GatedOperator, LinearOperator
from bidual.polar.products.witness import CellProof
from bidual.problems.problem import Problem
from bidual.problems.proof_witness import product_tables
from bidual.runtime.container import Container, Header, Tensors
from bidual.runtime.files import check_target, write_atomically
from bidual.runtime.registry import settings_of
from bidual.types import Blocks, Matrix

if TYPE_CHECKING:
    from bidual.problems.certificate import Certificate

_KNOWN_LOSSES = (
    *("squared", "absolute", "huber", "quantile", "hinge"),
    *("squared_hinge", "logistic", "softmax", "poisson"),
)
_MOST_NUMBERS = 2**22  # of samples that are written out
_DATA = ("X", "design", "targets", "weight")  # what a second file may hold


class NoProofError(ValueError):
    """A certificate of a kind that proof files do not describe yet; the message names it."""


class _Proof(Header):
    scope: str
    loss: str
    intercept: bool
    gauge: str
    map: str
    polar: str | None  # what bounds it over all neurons: "plane" or "products"
    cells: int | None  # of products
    data: str | None


_FILE = Container("proof", 1, _Proof, "write the proof again")


def save_proof(
    certificate: "Certificate",
    problem: Problem,
    path: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
) -> None:
    """Write a proof file; see :meth:`bidual.Certificate.save_proof`."""
    check_target(path)
    if data is not None:
        check_target(data, path)
    problem = problem.to(torch.float64)
    _check_fits(certificate, problem)
    tables = _problem_tables(problem) | _claim_tables(certificate, problem)
    polar, cells = _polar(certificate, problem), None
    if polar == "products":
        witness, operator = _cells(certificate), problem.operator
        assert isinstance(operator, NeuronOperator)
        cells = len(witness)
        tables |= product_tables(operator.X.cpu(), witness, certificate.dual_point.cpu())
    held = {name: table.detach().cpu().contiguous().clone() for name, table in tables.items()}
    digest = None if data is None else _write_data(data, held)
    loss, gauge, kind = problem.datafit.loss.name, problem.gauge.name, _kind(problem.operator)
    header = _Proof(
        scope=certificate.scope.name,
        loss=loss,
        intercept=problem.datafit.intercept,
        gauge=gauge,
        map=kind,
        polar=polar,
        cells=cells,
        data=digest,
    )
    _FILE.write(path, header, held)


def _check_fits(certificate: "Certificate", problem: Problem) -> None:
    """Refuse what has no proof file, by name."""
    if tuple(certificate.point.shape) != problem.operator.block_shape:
        raise ValueError(
            f"the certificate's point has shape {tuple(certificate.point.shape)}, the problem's "
            f"{problem.operator.block_shape}; give the problem that was certified."
        )
    if not math.isfinite(certificate.primal):
        raise NoProofError("a certificate without a finite point has no proof file; train for longer.")
    _kind(problem.operator)
    _check_known(problem.datafit.loss, problem.gauge)
    _polar(certificate, problem)


def _polar(certificate: "Certificate", problem: Problem) -> str | None:
    """What bounds the polar over all neurons in a proof file."""
    if certificate.scope.name == "BLOCKS":
        return None
    operator = problem.operator
    if not isinstance(operator, NeuronOperator) or _kind(operator) != "neurons" or type(problem.gauge) is not Group:
        raise NoProofError(
            f"certificates over all patterns of a {type(operator).__name__} under {type(problem.gauge).__name__} have "
            "no proof files yet; those of neurons on plain samples under weight decay have."
        )
    if operator.X.shape[1] <= 2:
        return "plane"
    _cells(certificate)
    return "products"


def _cells(certificate: "Certificate") -> list[CellProof]:
    """The witness of a product bound."""
    found = [one for one in certificate.witness or () if isinstance(one, CellProof)]
    if not found or len(found) != len(certificate.witness or ()):
        raise NoProofError(
            "certificates over all patterns by an enumeration of faces, the sphere or a formula have no proof files "
            "yet, those of the product bound have."
        )
    return found


def _check_known(loss: Loss, gauge: Gauge) -> None:
    if loss.name not in _KNOWN_LOSSES or type(loss) is not LOSSES.get(loss.name):
        raise NoProofError(f"{type(loss).__name__} loss has no proof files yet; they know {', '.join(_KNOWN_LOSSES)}.")
    if type(gauge) not in (Group, Nuclear):
        raise NoProofError(f"the gauge {type(gauge).__name__} has no proof files yet; use penalty='nuclear'.")


def _kind(operator: LiftedOperator) -> str:
    """The name of a map in proof files."""
    if isinstance(operator, (GatedOperator, LinearOperator)):
        return "gated"
    if type(operator) is NeuronOperator and operator.readout is None and operator.longest == 1:
        return "neurons"
    if math.prod(operator.block_shape) * math.prod(operator.output_shape) <= _MOST_NUMBERS:
        return "dense"
    raise NoProofError(
        f"the map {type(operator).__name__} of blocks {operator.block_shape} to predictions {operator.output_shape} is "
        "too large for a proof file; use fewer gates or samples."
    )


def _problem_tables(problem: Problem) -> Tensors:
    operator: Any = problem.operator
    n = problem.operator.output_shape[0]
    tables = {"targets": problem.datafit.targets}
    if _kind(operator) == "dense":
        tables["design"] = _design(operator)
    else:
        tables["X"] = _written_out(operator.X)
    if problem.datafit.weight is not None:
        tables["weight"] = problem.datafit.weight
    if isinstance(operator, GatedOperator):
        tables["patterns"] = operator.patterns.to(torch.int8)
    elif isinstance(operator, LinearOperator):
        tables["patterns"] = torch.ones(operator.n_blocks, n, dtype=torch.int8)
    elif isinstance(operator, NeuronOperator) and "X" in tables:
        tables["neurons"] = operator.neurons
    settings = list(settings_of(problem.datafit.loss).values())
    if settings:
        tables["loss_parameter"] = _number(settings[0])
    return tables | {"beta": _number(problem.beta)}


def _design(operator: LiftedOperator) -> Tensor:
    """The map as a matrix, as float64 computes it."""
    columns, Z = [], operator.zeros()
    for k in range(Z.numel()):
        Z.view(-1)[k] = 1.0
        columns.append(operator.forward(Z).flatten())
        Z.view(-1)[k] = 0.0
    return torch.stack(columns, 1)


def _written_out(X: Tensor) -> Tensor:
    if X.shape[0] * X.shape[1] > _MOST_NUMBERS:
        raise NoProofError(f"samples of {X.shape[0]} x {X.shape[1]} numbers are too large for a proof file.")
    return X.to_dense() if is_sparse(X) else X


def _claim_tables(certificate: "Certificate", problem: Problem) -> Tensors:
    """The network, the dual point and the bounds that are claimed."""
    Z, V, datafit = certificate.point, certificate.dual_point, problem.datafit
    tables = {
        "point": Z,
        "offset": datafit.offset(problem.operator.forward(Z)),
        "dual_point": V,
        "primal": _number(certificate.primal),
        "dual": _number(certificate.dual),
    }
    if datafit.intercept:
        tables["anchor"] = anchors(datafit, V)
    if isinstance(problem.gauge, Nuclear) and min(Z.shape[1:]) > 1:
        tables["right_vectors"] = _right_vectors(Z)
    return tables


def anchors(datafit: Datafit, V: Matrix) -> Int[Tensor, " c"]:
    """For every output a row of V that can take what its column lacks to zero, far inside the domain of the conjugate.

    For losses that are not separable all outputs have one such row.
    """
    w, Y = datafit.weights, datafit.targets
    if not datafit.loss.separable:
        room = ((V / w + Y).clamp(min=0) * w).amin(1)
        return room.argmax().expand(V.shape[1]).clone()
    share, best = V / w, torch.zeros(V.shape[1], dtype=torch.long)
    room = torch.zeros_like(V)
    for step in (1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3):
        stays = torch.ones_like(V, dtype=torch.bool)
        for moved in (share - step, share + step):
            stays &= datafit.loss.into_domain(moved, Y) == moved
        room = torch.where(stays, step * w, room)
    best = room.argmax(0)
    return best.cpu()


def _right_vectors(Z: Blocks) -> Tensor:
    """The right singular vectors of every block, as columns, which prove its nuclear norm."""
    return torch.linalg.svd(Z, full_matrices=True).Vh.mT


def _write_data(path: str | os.PathLike[str], tables: Tensors) -> str:
    """Move the data to a file of their own; its SHA-256."""
    content = safetensors.torch.save({name: tables.pop(name) for name in _DATA if name in tables})
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
