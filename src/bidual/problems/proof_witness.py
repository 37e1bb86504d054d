"""What proves the polar over all neurons in a proof file: the multipliers of a product bound, for the checker.

docs/proof_format.md has the format, docs/product_bound.md the mathematics.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bidual.polar import oracle_for
from bidual.polar.base import Repeated
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Pairs
from bidual.polar.products.witness import CellProof, ProductProof
from bidual.runtime.container import Tensors
from bidual.types import Matrix

_KINDS = ("aa", "bb", "ab")
_ABOVE = 1 + 8 * torch.finfo(torch.float64).eps  # so that H omega is positive as computed without rounding


def product_tables(X: Tensor, witness: Sequence[CellProof], V: Matrix) -> Tensors:
    """The rows that cells are about, and the numbers of every cell, for the dual point V."""
    oracle = oracle_for(X, None, lambda rows: ProductProof(rows, tuple(witness)))
    index, merged = torch.arange(len(X)), V
    if isinstance(oracle, Repeated):
        index, merged = oracle.index, oracle.merged(V)
    tables, W = {"rows": oracle.X, "lengths": oracle.lengths, "row_of": index}, merged * oracle.lengths[:, None]
    for k, one in enumerate(witness):
        tables |= {f"cell{k}.{name}": table for name, table in _cell_tables(oracle.X, one, W).items()}
    return tables


def _cell_tables(rows: Tensor, proof: CellProof, W: Matrix) -> Tensors:
    """Multipliers as they are kept, the scale that makes them those of W, and Y and D that go with them."""
    scale = torch.linalg.vector_norm(W)
    at, kept = proof.at.wide().scaled(float(scale)), proof.at
    majorant = Majorant(proof.cell(rows, W.shape[1]), W, at)
    if majorant.Y is None:
        raise ValueError("the witness does not prove a bound at this dual point; recheck the certificate.")
    tables = {
        "scale": scale,
        "rows": torch.tensor(proof.rows, dtype=torch.int64),
        "row_signs": torch.tensor(proof.row_signs, dtype=torch.int8),
        "diagonal": majorant.diagonal * _ABOVE,
        "Y": majorant.Y,
        "omega": kept.omega,
    }
    if proof.signs is not None:
        tables["signs"] = torch.tensor(proof.signs).to(torch.int8)
    for name in ("on_plus", "on_minus", "cone_plus", "cone_minus", "balance", "form_pairs", "form_cones"):
        tables[name] = getattr(kept, name)
    return tables | _pair_tables(kept.pairs)


def _pair_tables(pairs: Pairs) -> Tensors:
    """Weights of pairs at their (row, column); of clusters that have rows only."""
    tables: Tensors = {}
    new = torch.arange(pairs.count)
    if pairs.labels is not None and pairs.shares is not None:
        used, tables["labels"] = torch.unique(pairs.labels, return_inverse=True)
        tables["shares"], new = pairs.shares, torch.full((pairs.count,), -1)
        new[used.long()] = torch.arange(len(used))
    for kind, where, values in zip(_KINDS, pairs.where, pairs.values, strict=True):
        places = torch.stack([new[where.long() // pairs.count], new[where.long() % pairs.count]], 1)
        kept = (places >= 0).all(1)
        tables[f"places_{kind}"], tables[f"pairs_{kind}"] = places[kept].to(torch.int32), values[kept]
    return tables
