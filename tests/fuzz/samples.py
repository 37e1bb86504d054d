"""Strategies for what estimators are given: parameters, samples and targets, right, nearly right and wrong."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st
from scipy import sparse

WORDS = ("auto", "exact", "relu", "gated_relu", "linear", "nuclear", "per_output", "frobenius", "log_loss", "global")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 10**9, 10**30, -(10**30), 0.5, 1.5, -0.5, 1e-300, 1e300, 5e-324),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        "auto",
        "cpu",
        "x",
        "\0",
        (),
        (1,),
        (2, 2),
        (1, -1),
        (0,),
        [],
        [1],
    ),
    *([[1.0]], [1.0, -1.0], {}, {"a": 1}, {1}, object(), np.float64(0.5), np.int64(3), np.array(2), np.array([1, 2])),
    *(np.array([]), np.eye(3), np.array("x"), np.array([None]), torch.tensor(1.0), torch.eye(2), 1 + 2j, b"x", len),
)
SCALES = (1.0, 1.0, 1.0, 1e-300, 1e-160, 1e-30, 1e30, 1e155, 1e300)

SENSIBLE: dict[str, tuple[Any, ...]] = {
    "activation": ("relu", "gated_relu", "linear"),
    "beta": ("auto", 1.0, 1e-6, 1e-300, 1e300),
    "n_gates": ("auto", 1, 3),
    "n_subnetworks": ("auto", 1, 3),
    "n_starts": ("auto", 1, 3),
    "oracle": ("auto", "exact", "search"),
    "penalty": ("nuclear", "frobenius", "per_output"),
    "loss": (
        *("auto", "squared", "log_loss", "hinge", "squared_hinge", "huber", "absolute", "quantile", "poisson"),
        *("softmax", "logistic"),
    ),
    "solver": (
        *("auto", "kernel_admm", "eta_newton", "q_interior_point", "interior_point", "active_neurons", "fista"),
        *("primal_dual", "burer_monteiro", "column_generation", "cutting_planes", "frank_wolfe", "closed_form"),
        "cone_program",
    ),
    "tol": (0.5, 1e-2, 1e-6),
    "hidden_bias": (True, False),
    "fit_intercept": (True, False),
    "warm_start": (True, False),
    "random_state": (0, 7, None, np.random.RandomState(0)),
    "gates": (None, np.eye(2), np.ones((2, 3)), np.zeros((2, 1)), np.full((2, 2), 1e300)),
    "cv": (None, 2, 3),
    "scoring": (None, "accuracy", "r2", "roc_auc", "neg_log_loss", "f1_macro"),
    "callback": (None, print),
    "n_betas": (1, 2),
    "beta_ratio": (0.1, 1e-300),
    "betas": (None, [1.0, 0.1], (1e-300,)),
    "cv_tol": (0.5,),
    "n_jobs": (None, 1),
    "image_shape": (None, (1, 2, 2), (1, 4), (1, -1)),
    "token_shape": (None, (2, 2), (2, -1)),
    "kernel_size": (1, 2, (1, 2), 3),
    "stride": (1, 2),
    "padding": (0, 1, 10**9),
    "dilation": (1, 2),
    "pooling": ("auto", "global", 1, 2, (1, 1), np.eye(4)),
    "output": ("auto", "sequence", "tokens"),
    "widths": (1, 2, (2, 2)),
    "stages": (1, 2),
    "factors": (1, 2),
    "units": (1, 2),
    "downsample": ((), (1,), (2,)),
    "epochs": (1,),
    "batch_size": (1, 4),
    "learning_rate": (0.1, "auto", (0.1, 0.1), 1e30),
    "crop": (0, 1, "auto", 10**9),
    "flip": (True, False),
    "certificate_samples": (0, 4),
}
BOUNDED = {"max_time": 0.05, "max_iter": 3, "tol": 0.3, "n_betas": 2, "cv": 2, "stages": 1}
_FEW = {"n_gates": (1, 2), "pooling": (1, 2)}  # of a layerwise classifier, which takes less


@st.composite
def parameters(draw: st.DrawFn, estimator: type) -> dict[str, Any]:
    """A few parameters of an estimator, mostly sensible, sometimes not; the rest keep a fit short."""
    there = set(estimator().get_params())
    layerwise = "stages" in there
    known = sorted(there - {"verbose", "checkpoint", "resume", "max_time", "epochs"})
    sensible = SENSIBLE | (_FEW if layerwise else {})
    chosen = {name: value for name, value in BOUNDED.items() if name in there}
    chosen |= {"n_gates": 2, "epochs": 1, "pooling": 1, "downsample": (), "certificate_samples": 4} if layerwise else {}
    few = {"relu": {"oracle": "search", "n_starts": 3}, "gated_relu": {"n_gates": 3, "n_subnetworks": 3}}
    for name in draw(st.lists(st.sampled_from(known), max_size=4, unique=True)):
        odd = draw(st.integers(0, 5)) == 0 or name not in sensible
        strange = [value for value in ODD if name not in ("scoring", "callback") or not callable(value)]
        chosen[name] = draw(st.sampled_from(strange if odd else sensible[name]))
    if draw(st.integers(0, 15)) == 0 and "max_time" in chosen:
        chosen["max_time"] = draw(st.sampled_from(ODD[1:]))
    activation = chosen.get("activation", getattr(estimator(), "activation", None))
    if isinstance(activation, str):
        chosen = {name: value for name, value in few.get(activation, {}).items() if name in there} | chosen
    return chosen


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of one scale, with ties, constant columns, zeros and repeated rows among them."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.standard_normal(shape) if draw(st.booleans()) else rng.integers(-2, 3, shape).astype(float)
    with np.errstate(over="ignore", under="ignore"):
        values = values * draw(st.sampled_from(SCALES))
        if draw(st.integers(0, 3)) == 0 and len(shape) > 1:
            values = values * np.array([draw(st.sampled_from(SCALES)) for _ in range(shape[-1])])
    if values.size and draw(st.integers(0, 4)) == 0:
        values.flat[draw(st.integers(0, values.size - 1))] = draw(
            st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 1e-310, 0.0])
        )
    if len(shape) > 1 and values.size and draw(st.integers(0, 4)) == 0:
        values[..., 0] = draw(st.sampled_from([0.0, 1.0, 1e300]))
    return values


def _clothed(draw: st.DrawFn, values: np.ndarray) -> Any:
    """The same samples as another kind of thing."""
    plain = [lambda: values] * 6
    kinds = [
        *(
            values.tolist,
            lambda: values.astype(object),
            lambda: values.astype(np.float32),
            lambda: values.astype(">f8"),
        ),
        *(lambda: values.astype(complex), lambda: values.astype(str), lambda: torch.tensor(values.copy())),
        *(
            lambda: np.ma.masked_array(values, values > 0),
            lambda: values[..., None],
            lambda: values.ravel(),
            lambda: None,
        ),
        *(lambda: values.T, lambda: np.asfortranarray(values), lambda: "x", lambda: [values.tolist(), [1]], dict),
    ]
    if values.ndim == 2:
        kinds += [
            lambda: sparse.csr_matrix(values),
            lambda: pd.DataFrame(values),
            lambda: pd.DataFrame(values, columns=[f"c{k}" for k in range(values.shape[1])]),
            lambda: pd.DataFrame(values).astype(object),
            lambda: pd.DataFrame({"a": ["x"] * len(values), "a\0": range(len(values))}),
            lambda: pd.DataFrame(values, columns=pd.MultiIndex.from_product([["a"], range(values.shape[1])])),
        ]
    with np.errstate(all="ignore"):
        return draw(st.sampled_from([*plain, *kinds]))()


@st.composite
def samples(draw: st.DrawFn, axes: int = 2) -> Any:
    """X: mostly (n, 2) or (n, 4), for images (n, 1, 2, 2), for sequences (n, 2, 2), and sometimes of another shape."""
    n = draw(st.sampled_from([8, 8, 6, 12, 2, 1, 0]))
    usual = {2: [(n, 2), (n, 2), (n, 4), (n, 1)], 3: [(n, 2, 2), (n, 4), (n, 3, 2)], 4: [(n, 1, 2, 2), (n, 4)]}[axes]
    odd = [(n,), (n, 0), (n, 2, 2), (n, 1, 2, 2), (n, 1, 4), (n, 1, 1, 2, 2), (n, 3)]
    shape = draw(st.sampled_from(usual if draw(st.integers(0, 4)) else odd))
    return _clothed(draw, draw(arrays(shape)))


@st.composite
def targets(draw: st.DrawFn, X: Any, classes: bool) -> Any:
    """y with as many rows as X has, or not."""
    try:
        n = len(X)
    except TypeError:
        n = getattr(X, "shape", (5,))[0]
    n = n if draw(st.integers(0, 9)) else n + 1
    if draw(st.integers(0, 6)) == 0:
        return draw(
            st.sampled_from([None, [], "x", np.zeros(n), np.zeros((n, 0)), [None] * n, list(range(n)), [[]] * n])
        )
    if classes and draw(st.integers(0, 4)):
        labels = draw(st.sampled_from([[0, 1], ["a", "b"], [0, 1, 2], [True, False], [-1, 1], [0.5, 1.5], [None, "a"]]))
        drawn = [labels[k % len(labels)] for k in range(n)]
        return drawn if draw(st.booleans()) else np.array(drawn)
    shape = draw(st.sampled_from([(n,), (n,), (n, 1), (n, 2), (n, 2, 1)]))
    return draw(arrays(shape))
