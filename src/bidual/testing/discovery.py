"""Finding every concrete class of the package."""

import importlib
import inspect
import pkgutil
from typing import TypeVar

from bidual.runtime.registry import descendants

T = TypeVar("T")


def concrete_subclasses(base: type[T], *packages: str) -> list[type[T]]:
    """Every class of this package below ``base`` that can be instantiated.

    Imports all modules of ``packages`` to find them, by default those of the folder in which ``base`` is defined.
    """
    for name in packages or (base.__module__.rpartition(".")[0],):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
            importlib.import_module(module.name)
    found = {cls for cls in descendants(base) if cls.__module__.startswith("bidual.") and not inspect.isabstract(cls)}
    return sorted(found, key=lambda cls: cls.__qualname__)
