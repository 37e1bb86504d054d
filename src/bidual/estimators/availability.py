"""Methods that an estimator has with some parameters only."""

from collections.abc import Callable
from types import MethodType
from typing import Any


class _OnlyWhere:
    """The method of an instance that passes a check, and otherwise an AttributeError with the sentence of the check."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], object]) -> None:
        self.method, self.check = method, check

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        if instance is None:
            return self.method
        try:
            self.check(instance)
        except ValueError as error:
            raise AttributeError(str(error)) from error
        return MethodType(self.method, instance)


def only_where(check: Callable[[Any], object]) -> Callable[[Callable[..., Any]], Any]:
    """Of a method that instances have only where ``check(instance)`` raises no ValueError.

    ``hasattr`` is False elsewhere, as with scikit-learn's ``available_if``, whose error would not say the reason.
    """
    return lambda method: _OnlyWhere(method, check)
