"""Constructor parameters of estimators: declared once as dataclass fields, each with its check beside it.

An estimator is a ``@dataclass(kw_only=True, eq=False, repr=False)`` whose fields are its parameters; scikit-learn reads
them from the signature. Subclasses inherit them, may change a default (the check stays), and take one away with
``field(default=value, init=False)``.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from typing import Any, TypeVar

import numpy as np
import torch

from bidual.runtime.extras import need
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.runtime.numerical_errors import numerical_errors_as_value_error

T = TypeVar("T")
Check = Callable[[str, Any], None]


def parameter(default: Any, check: Check | None = None, *, activation: str | None = None) -> Any:
    """A field with its check; ``activation`` is the only one that the parameter has a meaning for."""
    return field(default=default, metadata={"check": check, "activation": activation})


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError for the first parameter that makes no sense, alone or with the activation."""
    declared = [(each, _declaration(type(estimator), each.name)) for each in fields(estimator) if each.init]
    for each, found in declared:
        if found.get("check") is not None:
            found["check"](each.name, getattr(estimator, each.name))
    for each, found in declared:
        value, wanted = getattr(estimator, each.name), found.get("activation")
        given = value is not each.default and not (isinstance(value, str) and value == each.default)
        if given and wanted is not None and wanted != estimator.activation:
            raise ValueError(
                f"the parameter {each.name} is for activation={wanted!r}, got activation={estimator.activation!r}; "
                "leave it out."
            )


def _declaration(cls: type, name: str) -> dict[str, Any]:
    """The check nearest to a class: one that changes a default only has none of its own."""
    found = (vars(base).get("__dataclass_fields__", {}).get(name) for base in cls.__mro__)
    return next((dict(each.metadata) for each in found if each is not None and each.metadata), {})


@contextmanager
def restored_if_refused(estimator: Any) -> Iterator[None]:
    """A fit that raises leaves the estimator as it was; numerical errors are raised as ValueError."""
    before = dict(estimator.__dict__)
    try:
        with numerical_errors_as_value_error():
            yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def must(be: str, holds: Callable[[Any], bool], hint: str = "") -> Check:
    """A check whose error says what the value must be."""

    def check(name: str, value: Any) -> None:
        try:
            right = bool(holds(value))
        except (TypeError, ValueError):  # an array, or what cannot be compared
            right = False
        if not right:
            raise ValueError(f"{name} must be {be}, got {value!r}.{hint}")

    return check


def accepted_by(function: Callable[[Any], object]) -> Check:
    """A check by a function that raises a ValueError itself."""

    def check(name: str, value: Any) -> None:
        function(value)

    return check


def one_of(words: Collection[str]) -> Check:
    return must(f"one of {list(words)}", lambda value: isinstance(value, str) and value in words)


def whole(least: int, most: int = 2**53) -> Check:
    """A whole number in a range; by default up to more than any data set has samples."""
    lowest = must(f"a whole number of at least {least}", lambda value: is_whole(value, least))
    highest = must(f"at most {most}", lambda value: value <= most)

    def check(name: str, value: Any) -> None:
        lowest(name, value)
        highest(name, value)

    return check


def is_number(value: object) -> bool:
    """Whether a parameter is one real number, finite or not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    return is_number(value) and 0 < value < np.inf


def is_whole(value: Any, least: int) -> bool:
    """Whether a parameter is a whole number of at least ``least``."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def as_count(value: int | str, auto: T) -> int | T:
    """What :data:`COUNT` allows, as a plain number."""
    return auto if isinstance(value, str) else int(value)


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def check_display(name: str, value: Any) -> None:
    """What is shown while training is drawn by rich."""
    if value:
        need("rich")


def check_device(name: str, value: Any) -> None:
    try:
        torch.empty(0, device=torch.device(value))
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be one that torch has here, such as 'cpu', got {value!r}.") from error


def check_memory(need: int, device: torch.device, what: str, remedy: str) -> None:
    """Raise a ValueError if something needs more memory than there is."""
    if need > (there := available_bytes(device)):
        raise ValueError(f"{what} would need {human_bytes(need)}, and {human_bytes(there)} are free; {remedy}.")


FLAG = must("True or False", lambda value: isinstance(value, (bool, np.bool_)))
COUNT = must("'auto' or a positive whole number", lambda value: is_auto(value) or is_whole(value, 1))
FRACTION = must("between 0 and 1", lambda value: is_positive(value) and value < 1)
TOL = must("between 0 and 1", lambda value: is_positive(value) and value < 1, " It is a relative gap, like 1e-4.")
SECONDS = must("None or positive", lambda value: value is None or (is_number(value) and value > 0))
STEPS = must("None or a positive whole number", lambda value: value is None or (is_positive(value) and value % 1 == 0))
JOBS = must(
    "None or a whole number other than 0", lambda value: value is None or (is_whole(value, -(2**31)) and value != 0)
)
FUNCTION = must("None or a function of a record", lambda value: value is None or callable(value))
POSITIVE = must("positive and finite", is_positive)
BETA = must("'auto' or a positive finite number", lambda value: is_auto(value) or is_positive(value))
