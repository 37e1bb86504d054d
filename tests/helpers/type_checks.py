"""The shape annotations of the package, checked while the tests run.

A check costs more than most calls, so by default the first call of every function in every test is checked, and the
others run as they are; `make test-slow` checks them all.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from typing import Any

import jaxtyping
from beartype import beartype
from jaxtyping import install_import_hook, jaxtyped

# Users pass values of any type to the first three, which refuse wrong ones; tests pass stand-ins to the others.
UNCHECKED = (
    "bidual.operators.patches.convolution.Convolution",
    "bidual.operators.patches.convolution._per_dimension",
    "bidual.architectures.gated_parallel.SubNetworkGates",
    "bidual.operators.sharded.Part",
    "bidual.operators.sharded.OrderChannel",
    "bidual.operators.sharded.serve",
)


class Checking:
    """How many calls of a function are checked, and which test is running."""

    calls: float = 1
    test: int = 0


def check_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, without the annotations that name ``Self``: it takes those on decorated classes only."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: hint for name, hint in hints.items() if "typing.Self" not in str(hint)}
    return beartype(function)


def first_calls(thing: Any = None, *, typechecker: Any) -> Any:
    """In place of ``jaxtyping.jaxtyped``, which the import hook puts on all functions and classes."""
    if thing is None:
        return partial(first_calls, typechecker=typechecker)
    if f"{thing.__module__}.{thing.__qualname__}".startswith(UNCHECKED):
        return thing
    if isinstance(thing, type):
        if is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = _first_calls(thing.__init__, typechecker)  # type: ignore[misc]
        return thing
    if "<locals>" in thing.__qualname__:  # made anew by every call around it, as its checks would be
        return thing
    return _first_calls(thing, typechecker)


def _first_calls(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None  # made when it is first needed: tests call a few of all functions
    test, calls = -1, 0

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, calls, checked
        if test != Checking.test:
            test, calls = Checking.test, 0
        calls += 1
        if calls > Checking.calls:
            return function(*args, **kwargs)
        checked = checked or jaxtyped(function, typechecker=typechecker)
        return checked(*args, **kwargs)

    return wrapped


# The face is left out: scikit-learn wants constructors that take anything, and fit to refuse it.
CORE = ("losses", "gauges", "operators", "patterns", "polar", "problems", "solvers", "architectures")
jaxtyping.jaxtyped = first_calls
install_import_hook([f"bidual.{room}" for room in CORE], "helpers.type_checks.check_types")
