"""What estimators take as samples and targets, and what they answer in (docs/inputs.md)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, csc_array, csr_array, issparse
from sklearn import get_config
from torch import Tensor

from bidual.estimators.parameters import check_memory
from bidual.numerics.sparse import from_scipy, is_sparse, written_out

FORMATS = ("csr", "csc")  # of sparse samples; others are converted to the first by scikit-learn
_COPIES = 3  # of samples that are written out: what validation and training hold of them


def as_plain_array(values: Any) -> Any:
    """Tensors as numpy or scipy have them, without gradient; arrays of other libraries by DLPack; all else as it is."""
    if isinstance(values, Tensor):
        return _from_torch(values)
    foreign = hasattr(values, "__dlpack__") and not hasattr(values, "__array__")
    return np.from_dlpack(values) if foreign else values


def _from_torch(tensor: Tensor) -> Any:
    there = tensor.detach().cpu()
    if there.dtype in (torch.float16, torch.bfloat16):
        there = there.to(torch.float64)
    if there.layout is torch.strided:
        return there.numpy()
    if there.layout is torch.sparse_coo:
        there = there.coalesce()
        return coo_array((there.values().numpy(), tuple(there.indices().numpy())), shape=tuple(there.shape))
    if there.layout is torch.sparse_csc:
        parts = (there.values(), there.row_indices(), there.ccol_indices())
        return csc_array(tuple(part.numpy() for part in parts), shape=tuple(there.shape))
    there = there.to_sparse_csr()
    parts = (there.values(), there.col_indices(), there.crow_indices())
    return csr_array(tuple(part.numpy() for part in parts), shape=tuple(there.shape))


def as_targets(y: Any) -> Any:
    """Targets or labels as a plain array."""
    y = as_plain_array(y)
    if issparse(y):
        raise ValueError(f"y must be a full array, got a sparse {type(y).__name__}; pass y.toarray().")
    return y


_SHAPED = "with the shape of a sample where X has none, or use a fully connected network such as ConvexMLPClassifier"


def refuse_sparse(X: Any, what: str, hint: str = _SHAPED) -> None:
    """For what needs all numbers, by default families whose samples have a shape."""
    if issparse(X):
        raise ValueError(f"{what} must be full arrays, got a sparse {type(X).__name__}; pass X.toarray(), {hint}.")


def as_samples(X: Any, keep_sparse: bool, device: torch.device) -> Tensor:
    """Validated rows of numbers as a tensor; sparse ones stay so where the network takes them."""
    if not issparse(X):
        return torch.tensor(np.ascontiguousarray(X), device=device)
    rows = from_scipy(X).to(device)
    return rows if keep_sparse else full_samples(rows, "use fewer samples or features, or a gated ConvexMLP")


def full_samples(X: Tensor, remedy: str) -> Tensor:
    """The samples written out, if memory allows."""
    if not is_sparse(X):
        return X
    what = f"a sparse X of shape {tuple(X.shape)}, which this network needs written out in full,"
    check_memory(8 * _COPIES * X.shape[0] * X.shape[1], X.device, what, remedy)
    return written_out(X)


def answers_in_kind(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of samples that gets a plain array.

    It answers with a numpy array, or with a tensor where X is one and scikit-learn's ``array_api_dispatch`` is on;
    labels that are no numbers stay an array.
    """

    @wraps(method)
    def answer(self: Any, X: Any) -> Any:
        found = method(self, as_plain_array(X))
        wanted = isinstance(X, Tensor) and get_config()["array_api_dispatch"] and found.dtype.kind in "fiub"
        return torch.from_numpy(np.ascontiguousarray(found)).to(X.device) if wanted else found

    return answer
