"""Classes by their names, also those that users define, and objects as a name with fields: what model files hold."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class UnknownNameError(ValueError):
    """A name of which no class is known."""


class Registry(Mapping[str, type[T]]):
    """The concrete classes below ``base``, wherever they are defined, by the class attribute ``key``.

    A class is found once the module that defines it has been imported. Of two classes with one name the class of this
    package counts, then the later one.

    Args:
        base: the class that all of them extend.
        what: what one of them is called in messages and model files.
        key: the attribute that holds the name; only a class's own attribute counts, not an inherited one.
        accepts: which classes count; by default those without abstract methods.
    """

    def __init__(
        self,
        base: type[T],
        what: str,
        key: str = "name",
        accepts: Callable[[Any], bool] = lambda cls: not inspect.isabstract(cls),
    ) -> None:
        self.base, self.what, self.key, self.accepts = base, what, key, accepts

    def _classes(self) -> dict[str, type[T]]:
        found: dict[str, type[T]] = {}
        for cls in descendants(self.base):
            name = cls.__name__ if self.key == "__name__" else vars(cls).get(self.key)
            if not isinstance(name, str) or not self.accepts(cls):
                continue
            if name not in found or not found[name].__module__.startswith("bidual."):
                found[name] = cls
        return found

    def __getitem__(self, name: str) -> type[T]:
        return self._classes()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes())

    def __len__(self) -> int:
        return len(self._classes())

    def find(self, name: str) -> type[T]:
        """The class of this name; :class:`UnknownNameError` if there is none."""
        if (cls := self.get(name)) is None:
            raise UnknownNameError(f"unknown {self.what} {str(name)[:60]!r}")
        return cls

    def name_of(self, thing: T) -> str:
        """The name under which the class of an object is found; ValueError if that would be another class."""
        cls = type(thing)
        name = str(getattr(cls, self.key, cls.__name__))
        if self.get(name) is not cls:
            raise ValueError(
                f"cannot save a {cls.__name__}: {name!r} is not its own name as a {self.what}; give the class another."
            )
        return name

    def make(self, name: str, settings: dict[str, Any]) -> T:
        """An object from a name and settings that come from outside; plain fields must have their types."""
        cls = self.find(name)
        kinds = {field.name: field.type for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
        return cls(**{key: _checked(key, value, kinds.get(key)) for key, value in settings.items()})


class Part:
    """A frozen dataclass that model files hold inside of other things: a setting, a certificate, a record."""

    name: ClassVar[str]


PARTS: Registry[Part] = Registry(Part, "part")


def settings_of(thing: object) -> dict[str, Any]:
    """What makes an object again, given its class: the fields of a dataclass."""
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    known = {field.name: getattr(thing, field.name) for field in fields if field.init}
    if "__dataclass_fields__" not in vars(type(thing)) and not vars(thing).keys() <= known.keys():
        name = type(thing).__name__
        raise ValueError(f"cannot save a {name}: its settings are not known; make {name} a frozen dataclass.")
    return known


def descendants(base: type[T]) -> Iterator[type[T]]:
    """The classes below a class."""
    for cls in base.__subclasses__():
        yield cls
        yield from descendants(cls)


def _checked(key: str, value: Any, kind: Any) -> Any:
    """A value for a field of a plain type; fields of other types are left to their class."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    right = {
        float: number,
        int: number and isinstance(value, int) and abs(value) < 2**53,
        bool: isinstance(value, bool),
        str: isinstance(value, str),
    }
    if kind in right and not right[kind]:
        raise ValueError(f"{key!r} must be of type {kind.__name__}, got {str(value)[:60]!r}")
    return float(value) if kind is float else value
