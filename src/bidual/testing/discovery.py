"""Finding every concrete class of the package."""

import importlib
import inspect
import pkgutil
from typing import TypeVar

from bidual.runtime.registry import descendants

T = TypeVar("T")


def concrete_subclasses(base: type[T]) -> list[type[T]]:
    """Every class of this package below ``base`` that can be instantiated; imports the base's folder to find them."""
    package = importlib.import_module(base.__module__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    found = {cls for cls in descendants(base) if cls.__module__.startswith("bidual.") and not inspect.isabstract(cls)}
    return sorted(found, key=lambda cls: cls.__qualname__)
