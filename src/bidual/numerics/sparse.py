"""Matrices in compressed rows (CSR): what torch lacks for them, written so that it takes full matrices too.

A sparse matrix is a torch tensor of layout ``torch.sparse_csr`` with sorted, distinct columns in every row. torch
multiplies it with a full matrix from the right; its own products of two sparse matrices, transposes and selections of
rows are missing or slow, and scipy has them. Nothing here writes a sparse matrix out, but :func:`written_out`.
"""

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

_AT_ONCE = 2**22  # entries of a product that are held in compressed form
_FULL = 1 / 3  # of the rows: a column with more entries takes hardly more memory as a full one, and is multiplied so


def _make(indptr: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], shape: tuple[int, int]) -> Tensor:
    width = np.int32 if max(len(columns), *shape) < 2**31 else np.int64
    starts, places, entries = (torch.tensor(part) for part in (indptr.astype(width), columns.astype(width), values))
    return torch.sparse_csr_tensor(starts, places, entries, size=shape, check_invariants=True)


with warnings.catch_warnings():  # torch says once, at the first such tensor, that their support is in beta state
    warnings.simplefilter("ignore")
    _make(np.zeros(1), np.zeros(0), np.zeros(0), (0, 0))


def is_sparse(X: Tensor) -> bool:
    return X.layout == torch.sparse_csr


def from_scipy(X: Any) -> Float[Tensor, "n d"]:
    """A copy of any scipy matrix, of its dtype; entries that come twice are added up."""
    rows = sparse.csr_array(X)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return _make(rows.indptr, rows.indices, rows.data, rows.shape)


def to_scipy(X: Float[Tensor, "n d"]) -> sparse.csr_array:
    """The same entries, which are not copied."""
    parts = (part.detach().cpu().numpy() for part in (X.values(), X.col_indices(), X.crow_indices()))
    return sparse.csr_array(tuple(parts), shape=tuple(X.shape))


def values_of(X: Tensor) -> Tensor:
    """The entries that are kept, as a full tensor."""
    return X.values() if is_sparse(X) else X


def written_out(X: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The full matrix, for programs that are small or that nothing else is known for."""
    return X.to_dense() if is_sparse(X) else X


def transposed(X: Float[Tensor, "n d"]) -> Float[Tensor, "d n"]:
    """X^T, in compressed rows too if X is."""
    return from_scipy(to_scipy(X).T).to(X.device) if is_sparse(X) else X.T


def take_rows(X: Tensor, rows: Tensor | slice) -> Tensor:
    """Some rows, by their numbers, a mask or a slice."""
    if not is_sparse(X):
        return X[rows]
    chosen = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
    return from_scipy(to_scipy(X)[chosen]).to(X.device)


def side_by_side(parts: list[Float[Tensor, "n d"]]) -> Float[Tensor, "n k"]:
    """[X_1 | X_2 | ...], sparse if the first of them is; full ones beside it are taken apart into entries."""
    if not is_sparse(parts[0]):
        return torch.cat(parts, 1)
    entries = [to_scipy(part) if is_sparse(part) else sparse.csr_array(part.cpu().numpy()) for part in parts]
    return from_scipy(sparse.hstack(entries, format="csr")).to(parts[0].device)


def scaled_rows(weights: Float[Tensor, " n"], X: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """diag(weights) X, without entries that become zero."""
    if not is_sparse(X):
        return weights[:, None] * X
    product = sparse.csr_array(sparse.diags_array(weights.to(X.dtype).cpu().numpy()) @ to_scipy(X))
    product.eliminate_zeros()
    return from_scipy(product).to(X.device)


def column_sums(X: Float[Tensor, "n d"], entries: Float[Tensor, " e"]) -> Float[Tensor, " d"]:
    """Sums over the columns of a sparse X of numbers that take the places of its entries."""
    return entries.new_zeros(X.shape[1]).index_add_(0, X.col_indices().long(), entries)


def column_squares(X: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The diagonal of X^T X."""
    return column_sums(X, X.values().square()) if is_sparse(X) else X.square().sum(0)


def column_spread(
    X: Float[Tensor, "n d"], share: Float[Tensor, " n"], centred: bool
) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    r"""Mean (zeros if not ``centred``), root mean square distance from it, and largest absolute value of every column.

    Shares are positive with sum one. For a sparse X the entries that are not kept add their share times the squared
    mean; E x^2 - (E x)^2 would lose all digits of a column that is nearly constant.
    """
    if not is_sparse(X):
        centre = share @ X if centred else X.new_zeros(X.shape[1])
        return centre, (share @ (X - centre).square()).sqrt(), X.abs().amax(0)
    x, column = X.values(), X.col_indices().long()
    each = share.repeat_interleave(X.crow_indices().diff().long())
    centre = column_sums(X, each * x) if centred else x.new_zeros(X.shape[1])
    missing = len(share) - torch.bincount(column, minlength=X.shape[1])
    left = torch.maximum(1 - column_sums(X, each), missing * share.min())
    left = torch.where(missing > 0, left, 0.0)  # exactly: what rounding leaves of it would look like a spread
    square = column_sums(X, each * (x - centre[column]).square()) + left * centre.square()
    return centre, square.sqrt(), x.new_zeros(X.shape[1]).scatter_reduce(0, column, x.abs(), "amax")


def gram(X: Float[Tensor, "n d"], weights: Float[Tensor, "n 1"] | None = None) -> Float[Tensor, "d d"]:
    """X^T diag(weights) X, a full matrix."""
    if not is_sparse(X):
        return X.T @ (X if weights is None else weights * X)
    rows = to_scipy(X)
    scale = None if weights is None else weights.to(X.dtype).cpu().numpy()
    thin, full, numbers = _apart(rows)
    right = thin if scale is None else sparse.csr_array(thin.multiply(scale))
    G = np.empty((rows.shape[1],) * 2, rows.dtype)
    scaled = numbers if scale is None else scale * numbers
    across = thin.T @ scaled
    G[np.ix_(~full, ~full)] = _full_product(sparse.csr_array(thin.T), right)
    G[np.ix_(~full, full)], G[np.ix_(full, ~full)] = across, across.T
    G[np.ix_(full, full)] = numbers.T @ scaled
    return torch.from_numpy(G).to(X.device)


def row_gram(X: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """X X^T, a full matrix."""
    if not is_sparse(X):
        return X @ X.T
    thin, _, numbers = _apart(to_scipy(X))
    G = _full_product(thin, sparse.csr_array(thin.T))
    return torch.from_numpy(G).to(X.device) + torch.from_numpy(numbers @ numbers.T).to(X.device)


def _apart(rows: sparse.csr_array) -> tuple[sparse.csr_array, NDArray[np.bool_], NDArray[Any]]:
    """The columns with few entries, which columns have many, and these as a full matrix."""
    full = np.bincount(rows.indices, minlength=rows.shape[1]) > _FULL * rows.shape[0]
    columns = sparse.csc_array(rows)
    return sparse.csr_array(columns[:, ~full]), full, columns[:, full].toarray()


def _full_product(left: sparse.csr_array, right: sparse.csr_array) -> NDArray[Any]:
    """left @ right, some rows at a time."""
    product = np.empty((left.shape[0], right.shape[1]), np.result_type(left, right))
    step = max(_AT_ONCE // max(right.shape[1], 1), 1)
    for start in range(0, len(product), step):
        product[start : start + step] = (left[start : start + step] @ right).toarray()
    return product
