"""Folds of a cross-validation: which samples train and which are held out."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import get_routing_for_object
from torch import Tensor

from bidual.estimators.parameters import is_whole, must
from bidual.runtime.json_text import one_line

Split = tuple[NDArray[np.intp], NDArray[np.intp]]  # row numbers to train on, and held-out ones
_SHOWN = 60  # characters of a split that is refused


def _is_splitter(cv: object) -> bool:
    return hasattr(cv, "split") and not isinstance(cv, (str, bytes, Tensor))


def _is_iterable(cv: object) -> bool:
    return isinstance(cv, Iterable) and not isinstance(cv, (str, bytes)) and getattr(cv, "ndim", 1) > 0


CV = must(
    "None, a whole number of at least 2, a splitter of scikit-learn or an iterable of (train, test)",
    lambda cv: cv is None or is_whole(cv, 2) or _is_splitter(cv) or _is_iterable(cv),
)


def make_splits(cv: Any, X: Any, y: Any, metadata: Mapping[str, Any], *, stratified: bool) -> list[Split]:
    """The folds that :data:`CV` allows, on samples as scikit-learn's splitters take them; or a refusal.

    Args:
        metadata: for the splitter, such as ``groups``.
        stratified: whether a number means folds of equal shares of the classes.
    """
    _check_groups(cv, "groups" in metadata)
    if is_whole(cv, 2):
        pairs = _numbered(int(cv), X, y, stratified)
    else:
        pairs = cv.split(X, y, **metadata) if _is_splitter(cv) else cv
    splits = [_checked(pair, len(y)) for pair in pairs]
    if not splits:
        raise ValueError(f"cv={cv!r} has no folds; an iterator can be read once only, use a list of (train, test).")
    return splits


def _numbered(count: int, X: Any, y: Any, stratified: bool) -> list[Split]:
    """The folds of scikit-learn, as a list, because it refuses too many of them only when the first is asked for."""
    try:
        return list(check_cv(count, y, classifier=stratified).split(X, y))
    except ValueError as error:
        of = " of every class" if stratified else ""
        raise ValueError(
            f"cross-validation with {count} folds needs as many samples{of} ({one_line(error)}); give cv a smaller "
            "number that is at least 2, or a list of (train, test), or add samples."
        ) from error


def check_weights(splits: Iterable[Split], weight: NDArray[np.float64] | None) -> None:
    """Refuse folds with a part whose samples all have weight zero."""
    for number, parts in enumerate(splits):
        for what, rows in zip(("training", "held-out"), parts, strict=True):
            if weight is not None and not weight[rows].any():
                raise ValueError(
                    f"fold {number} of cv has no {what} sample of positive weight; use fewer folds, or shuffle them."
                )


def _check_groups(cv: Any, given: bool) -> None:
    """Refuse groups that are missing, or that would be ignored."""
    wanted = _groups_request(cv)
    if wanted and not given:
        raise ValueError(
            f"cv={cv!r} needs the group of every sample, got none; call fit(X, y, groups=...), or use another cv."
        )
    if given and wanted is False:
        raise ValueError(
            f"groups were given, but cv={cv!r} ignores them; use a splitter such as GroupKFold or "
            "StratifiedGroupKFold, or leave groups out."
        )


def _groups_request(cv: Any) -> bool | None:
    """Whether folds need groups; None for splitters that do not say, which are passed what there is."""
    if not _is_splitter(cv):
        return False
    requests = get_routing_for_object(cv).split.requests if hasattr(cv, "get_metadata_routing") else {}
    request = requests.get("groups")
    if request is True or isinstance(request, str):
        return True
    return False if type(cv).__module__.startswith("sklearn.") else None


def _checked(pair: Any, n: int) -> Split:
    try:
        train, test = (_rows(part, n) for part in pair)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"a fold of cv must be (train, test), each a mask or row numbers from 0 to {n - 1}, not empty; got "
            f"{repr(pair)[:_SHOWN]}."
        ) from error
    return train, test


def _rows(part: Any, n: int) -> NDArray[np.intp]:
    """Row numbers, of a mask too."""
    rows = np.asarray(part)
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows) or rows.min() < 0 or rows.max() >= n:
        raise ValueError("no list of row numbers")
    return rows.astype(np.intp)
