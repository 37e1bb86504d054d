"""Shapes of the tensors that every room uses, and access to optional abilities."""

from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

Matrix = Float[Tensor, "n c"]
Blocks = Float[Tensor, "p a b"]

T = TypeVar("T")


def as_protocol(thing: object, protocol: type[T]) -> T:
    """``thing`` as a ``protocol``, or a TypeError that names both. Solvers are checked by ``needs`` before they run."""
    if not isinstance(thing, protocol):
        raise TypeError(f"{type(thing).__name__} is not {protocol.__name__}.")
    return thing
