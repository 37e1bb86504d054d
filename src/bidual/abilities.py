"""Asking a part of a problem for something that not every part can do."""

from typing import TypeVar

T = TypeVar("T")


def ability(thing: object, protocol: type[T]) -> T:
    """``thing`` as a ``protocol``, or a TypeError that names both. Solvers are checked by ``needs`` before they run."""
    if not isinstance(thing, protocol):
        raise TypeError(f"{type(thing).__name__} is not {protocol.__name__}.")
    return thing
