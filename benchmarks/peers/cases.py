"""The problems of the race, with what is demanded on each: the gap, and by which factor every rival is to be beaten."""

from collections.abc import Mapping
from dataclasses import dataclass

from problems import Spec
from systems import SYSTEMS


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        name: short and unique, for ``--only``.
        spec: the problem.
        target: the relative gap to reach.
        needs: rivals in the order in which they run, with the factor demanded; None is shown only.
        at_most: seconds that we may take, if that is demanded.
    """

    name: str
    spec: Spec
    target: float
    needs: Mapping[str, float | None]
    at_most: float | None = None

    def __post_init__(self) -> None:
        unknown = set(self.needs) - set(SYSTEMS)
        if unknown:
            raise ValueError(f"rivals must be among {sorted(SYSTEMS)}, got {sorted(unknown)}.")


_LARGE, _SMALL = (2000, 50, 500), (500, 20, 100)
_FRACTIONS = (0.1, 0.01)
_GROUP_LASSO = ("pyscnn", "adelie", "celer", "skglm")
_SPIRAL_BETAS = (1e-4, 1e-3, 1e-2, 1e-1)  # BM Fig. 2
_FEATURES = (("shifted", 1), ("correlated", 2), ("heavy", 3), ("gaussian", 4))


def _gated() -> tuple[Case, ...]:
    sizes = [
        (_LARGE, 1, {0.1: 8.0, 0.01: 30.0}),
        (_LARGE, 5, {0.1: 8.0, 0.01: 30.0}),
        (_SMALL, 1, dict.fromkeys(_FRACTIONS, 3.0)),
    ]
    return tuple(
        Case(
            f"gated-{size[0]}-c{c}-{fraction:g}",
            Spec(*size, c, fraction),
            1e-6,
            dict.fromkeys(_GROUP_LASSO, factors[fraction]),
        )
        for size, c, factors in sizes
        for fraction in _FRACTIONS
    )


def _odd_features() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"{features}-{size[0]}-{fraction:g}",
            Spec(*size, fraction=fraction, features=features, seed=seed),
            1e-6,
            {"pyscnn": 5.0, "skglm": 5.0},
        )
        for size in (_SMALL, _LARGE)
        for features, seed in _FEATURES
        for fraction in _FRACTIONS
    )


def _nuclear() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"nuclear-2000-{fraction:g}",
            Spec(*_LARGE, 5, fraction, penalty="nuclear"),
            1e-6,
            {"bidual fista": None},
            1.5,
        )
        for fraction in _FRACTIONS
    )


def _classification(size: tuple[int, int, int]) -> tuple[Case, ...]:
    """adelie's groups hold all classes, so softmax is raced with Frobenius norms; nuclear norms it does not have."""
    both: dict[str, float | None] = {"bidual fista": 5.0, "adelie": 5.0}
    alone: dict[str, float | None] = {"bidual fista": 5.0}
    kinds = (("logistic", 1, "per_output", both), ("softmax", 5, "frobenius", both), ("softmax", 5, "nuclear", alone))
    return tuple(
        Case(
            f"{loss}-{penalty}-{size[0]}-{fraction:g}",
            Spec(*size, c, fraction, loss, penalty),
            1e-4,
            needs,
        )
        for loss, c, penalty, needs in kinds
        for fraction in _FRACTIONS
    )


def _spiral() -> tuple[Case, ...]:
    needs = {"clarabel": 3.0, "cvxpy clarabel": 6.0, "cvxpy scs": 6.0}
    return tuple(
        Case(f"spiral-{beta:g}", Spec(150, 2, 100, 3, penalty="nuclear", data="spiral", beta=beta), 1e-6, needs)
        for beta in _SPIRAL_BETAS
    )


def _cones() -> tuple[Case, ...]:
    needs = {"adelie": 1.0, "cvxpy clarabel": 3.0, "pyscnn": 1.0, "clarabel": None}
    return tuple(
        Case(f"relu-200-{fraction:g}", Spec(200, 10, 40, fraction=fraction, network="relu"), 1e-5, needs)
        for fraction in _FRACTIONS
    )


def _path(size: tuple[int, int, int]) -> Case:
    """The last point alone may take a third of the path's time, or more."""
    needs = {"adelie": 1.0, "bidual last point": 1 / 3}
    return Case(f"path-{size[0]}", Spec(*size, fraction=0.01, path=20), 1e-3, needs)


CASES: tuple[Case, ...] = (
    *_gated(),
    *_odd_features(),
    *_nuclear(),
    *_classification(_LARGE),
    *_spiral(),
    *_cones(),
    _path(_LARGE),
)
QUICK: tuple[Case, ...] = (
    *(case for case in CASES if case.spec.n <= _SMALL[0]),
    *_classification(_SMALL),
    _path(_SMALL),
)
