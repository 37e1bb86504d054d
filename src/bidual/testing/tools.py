"""Assertions with telling messages, random tensors, and every concrete class of the package."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import jaxtyping
import torch
from torch import Tensor

from bidual.runtime.registry import descendants

T = TypeVar("T")


def require(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(f"broken: {promise}.")


def require_close(actual: Tensor | float, expected: Tensor | float, promise: str, tol: float = 1e-10) -> None:
    actual, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (actual, expected))
    require(actual.shape == expected.shape, f"{promise}: shapes {tuple(actual.shape)}, {tuple(expected.shape)}")
    scale = 1 + (float(expected.abs().max()) if expected.numel() else 0.0)
    error = float((actual - expected).abs().max()) if expected.numel() else 0.0
    require(error <= tol * scale, f"{promise}: off by {error:.3e}, allowed {tol * scale:.3e}")


def require_at_least(larger: Tensor | float, smaller: Tensor | float, promise: str, tol: float = 1e-11) -> None:
    larger, smaller = (torch.as_tensor(x, dtype=torch.float64) for x in (larger, smaller))
    slack = larger - smaller + tol * (1 + smaller.abs())
    require(bool((slack >= 0).all()), f"{promise}: short by {-float(slack.min()):.3e}")


def require_refused(what: str, call: Callable[[], object]) -> None:
    with own_checks_only():
        try:
            call()
        except ValueError:
            return
    raise AssertionError(f"broken: {what} must raise a ValueError.")


@contextmanager
def own_checks_only() -> Iterator[None]:
    """Without jaxtyping's checks, where a test run has switched them on: users do not have them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def positive(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 0.1 + 3 * torch.rand(shape, generator=generator, dtype=torch.float64)


def concrete_subclasses(base: type[T], *packages: str) -> list[type[T]]:
    """Every class of this package below ``base`` that can be instantiated.

    Imports all modules of ``packages`` to find them, by default those of the folder in which ``base`` is defined.
    """
    for name in packages or (base.__module__.rpartition(".")[0],):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
            importlib.import_module(module.name)
    found = {cls for cls in descendants(base) if cls.__module__.startswith("bidual.") and not inspect.isabstract(cls)}
    return sorted(found, key=lambda cls: cls.__qualname__)
