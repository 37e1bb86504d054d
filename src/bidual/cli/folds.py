"""The folds of a cross-validation, as options of a command say how they are made and judged."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_MOST = 5  # folds


@dataclass(frozen=True)
class Folds:
    """What judges networks on held-out rows, and the column whose equal rows stay in one fold; None for neither."""

    scoring: str | None = None
    groups: str | None = None

    def check(self, cross_validates: bool) -> None:
        """Refuse what a command without folds, or scikit-learn, does not know."""
        if not cross_validates and self != Folds():
            raise ValueError(
                "--scoring and --groups are for the folds of a cross-validation; use --beta cv in one process, or "
                "leave them out."
            )
        if self.scoring is not None:
            from bidual.estimators.scoring import check_scoring

            check_scoring(self.scoring)

    def settings(self, task: str, groups: "NDArray[Any] | None") -> dict[str, Any]:
        """Parameters of the estimator."""
        from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

        found = {} if self.scoring is None else {"scoring": self.scoring}
        if groups is None:
            return found
        splitter = StratifiedGroupKFold if task == "classification" else GroupKFold
        return found | {"cv": splitter(min(_MOST, len(set(groups.tolist()))))}


def split_groups(features: "pd.DataFrame", name: str | None) -> "tuple[pd.DataFrame, NDArray[Any] | None]":
    """The columns to predict from, and a number for the group of every row."""
    if name is None:
        return features, None
    from bidual.io.tables import split_target

    others, column = split_target(features, name, missing=True)
    groups, values = column.factorize()
    if len(values) < 2 or (groups < 0).any():
        raise ValueError(
            f"--groups needs a column with at least two values and one in every row, got {len(values)} in {name!r} "
            f"and none in {int((groups < 0).sum())} rows; name another column, or drop rows."
        )
    return others, groups
