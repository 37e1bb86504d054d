"""Which of scikit-learn's conformance checks are run on which estimators, with what settings."""

from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from bidual import estimators

Settings = dict[str, Any]

RELU: Settings = {"tol": 1e-2}
SEARCHED: Settings = {"tol": 0.3, "oracle": "search", "n_starts": 16}
GATED: Settings = {"activation": "gated_relu", "n_gates": 10, "tol": 1e-4}
LINEAR: Settings = {"activation": "linear"}
CV: Settings = {"n_betas": 2, "cv": 2}
SIGNAL: Settings = {"image_shape": (1, -1), "padding": 1}  # rows of numbers as signals of one channel
TOKEN: Settings = {"token_shape": (1, -1)}  # and as sequences of one token
SAMPLED: Settings = {"activation": "gated_relu", "n_subnetworks": 8, "widths": 2}
THREE_LAYERS: Settings = {"oracle": "search", "n_starts": 16, "widths": 2, "tol": 0.5}
STAGE: Settings = {"stages": 1, "n_gates": 16, "epochs": 20, "learning_rate": 0.1, "certificate_samples": 0}
ROW: Settings = {"image_shape": (1, 1, -1), "downsample": (), "pooling": 1, "crop": 0, "flip": False}
FIXED: Settings = {"betas": [0.1, 1.0], "cv": 2}  # shares of beta_max follow the weights of classes, and fit any class

# What to check quickly; those that are not named here are checked with all defaults.
QUICK: dict[str, list[Settings]] = {
    "ConvexMLPClassifier": [GATED, LINEAR],
    "ConvexMLPRegressor": [GATED, LINEAR],
    "ConvexMLPClassifierCV": [GATED | FIXED],
    "ConvexMLPRegressorCV": [GATED | CV],
    "ConvexCNNClassifier": [SIGNAL | {"n_gates": 10, "beta": 1.0}],
    "ConvexCNNRegressor": [SIGNAL | {"n_gates": 10}],
    "ConvexAttentionClassifier": [TOKEN | {"n_gates": 5, "beta": 50.0}],
    "ConvexAttentionRegressor": [TOKEN | {"n_gates": 5}],
    "ConvexParallelClassifier": [SAMPLED],
    "ConvexParallelRegressor": [SAMPLED],
    "ConvexClassifierCV": [CV | {"scoring": "accuracy"}],
    "ConvexRegressorCV": [CV | {"scoring": "r2"}],
    "LayerwiseCNNClassifier": [STAGE | ROW],
    "ZCAWhitening": [{}, {"center": False}, {"constant_column": False}],
    "ConvexCNNClassifierCV": [],
    "ConvexCNNRegressorCV": [],
    "ConvexAttentionClassifierCV": [],
    "ConvexAttentionRegressorCV": [],
    "ConvexParallelClassifierCV": [],
    "ConvexParallelRegressorCV": [],
}
OVER_PATTERNS: dict[str, list[Settings]] = {"ConvexMLPClassifier": [RELU], "ConvexMLPRegressor": [RELU]}
SLOW: dict[str, list[Settings]] = {
    "ConvexMLPClassifierCV": [LINEAR | CV, SEARCHED | FIXED],
    "ConvexMLPRegressorCV": [LINEAR | CV, SEARCHED | CV],
    "ConvexCNNClassifier": [SIGNAL | LINEAR | {"beta": 1.0}],
    "ConvexCNNRegressor": [SIGNAL | LINEAR],
    "ConvexCNNClassifierCV": [SIGNAL | FIXED | {"n_gates": 10}],
    "ConvexCNNRegressorCV": [SIGNAL | CV | {"n_gates": 10}],
    "ConvexAttentionClassifier": [TOKEN | LINEAR],
    "ConvexAttentionRegressor": [TOKEN | LINEAR],
    "ConvexAttentionClassifierCV": [TOKEN | FIXED | {"n_gates": 3, "betas": [100.0, 300.0]}],
    "ConvexAttentionRegressorCV": [TOKEN | CV | {"n_gates": 5}],
    "ConvexParallelClassifier": [THREE_LAYERS],
    "ConvexParallelRegressor": [THREE_LAYERS],
    "ConvexParallelClassifierCV": [SAMPLED | CV],
    "ConvexParallelRegressorCV": [SAMPLED | CV],
}
# What no default can know, and for networks that would take a minute each, a limit on how long they are trained.
NEEDED: dict[str, Settings] = {
    "CNN": SIGNAL,
    "Attention": TOKEN,
    "Parallel": {"max_time": 0.3},
}
# By default, whole paths on every fold of images, sequences and sub-networks take minutes; layerwise ones want images.
MINUTES = {name for name in QUICK if name.endswith("CV") and any(key in name for key in NEEDED)} | {
    "LayerwiseCNNClassifier"
}
LONG = {  # seconds with ReLU over all patterns, for what all estimators share: how samples and weights are read
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_dtypes",
    "check_positive_only_tag_during_fit",
    "check_regressor_data_not_an_array",
    "check_regressor_multioutput",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_supervised_y_2d",
}
REPETITIONS = {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"}


def found() -> dict[str, type[BaseEstimator]]:
    """Every estimator of the package, by looking into its files."""
    files = [import_module(f"{estimators.__name__}.{each.name}") for each in iter_modules(estimators.__path__)]
    classes = {value for file in files for value in vars(file).values() if isinstance(value, type)}
    ours = {each for each in classes if issubclass(each, BaseEstimator) and each.__module__.startswith("bidual.")}
    return {each.__name__: each for each in sorted(ours, key=lambda each: each.__name__) if not _is_base(each)}


def _is_base(each: type) -> bool:
    """Of families, and of what model files can hold: neither classifies, nor regresses, nor transforms."""
    return isabstract(each) or not any(hasattr(each, method) for method in ("predict", "transform"))


def exact(estimator: Any) -> Any:
    """For checks that want predictions to 1e-7, which need a gap of about its square.

    Regressors have to differ from zero, too: with small betas they interpolate targets of zero.
    """
    sequences = hasattr(estimator, "token_shape")  # their fits take first-order steps
    estimator = clone(estimator).set_params(tol=1e-14, max_time=20.0 if sequences else 3.0)
    squared = isinstance(estimator, estimators.ConvexMLPRegressor | estimators.ConvexRegressor)
    if squared and estimator.activation in ("linear", "given"):
        estimator.set_params(solver="eta_newton")
    if "betas" in estimator.get_params() and not hasattr(estimator, "class_weight"):
        estimator.set_params(betas=[30.0, 100.0] if sequences else [3.0, 10.0])
    return estimator


def reason_to_fail(estimator: Any, name: str) -> str | None:
    """Why weights and repetitions differ by more than 1e-7 of a prediction, and rare classes are told apart.

    tests/estimators hold the former at a tolerance that follows from the certified gap.
    """
    settings = estimator.get_params()
    if name in REPETITIONS and settings.get("activation") == "relu":
        return "other neurons are found from other rows: predictions agree to 1e-3 only, also where the gap is 1e-8"
    if name == "check_class_weight_classifiers" and "kernel_size" in settings and settings.get("beta") == "auto":
        return "beta_max follows the lightest class, and a hundredth of it is too little not to tell that one apart"
    return None


def checks(settings: dict[str, list[Settings]], names: list[str], slow: bool) -> Iterator[Any]:
    """Of every estimator; long ones, and repetitions on other kinds of arrays, are left to `make test-slow`."""
    for name in names:
        for number, each in enumerate(settings.get(name, [] if slow else [{}])):
            estimator = found()[name](**each)
            relu = estimator.get_params().get("activation") == "relu"
            for fresh, check in estimator_checks_generator(estimator):
                what, options = check.func.__name__, check.keywords
                long = (relu and (what in LONG or "readonly_memmap" in options)) or _is_long(estimator, what)
                reason = reason_to_fail(estimator, what)
                expected = [pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)] if reason else []
                marks = [*[pytest.mark.slow] * (slow or long), *expected]
                words = "-".join([name, str(number), what, *map(str, options.values())])
                yield pytest.param(fresh, check, marks=marks, id=words)


def _is_long(estimator: Any, name: str) -> bool:
    """Exact fits of networks on patches take all the time that they may."""
    return name in REPETITIONS and bool({"image_shape", "token_shape"} & estimator.get_params().keys())


def defaults() -> dict[str, list[Settings]]:
    """Of estimators whose quick checks are with other settings, where a check takes seconds and not minutes."""
    others = {name for name, settings in QUICK.items() if {} not in settings} - MINUTES
    return {name: [next((NEEDED[key] for key in NEEDED if key in name), {})] for name in sorted(others)}


def compares_exact_fits(parameters: Any) -> bool:
    """Whether a test is about fits that are more exact than any default's."""
    return parameters.values[1].func.__name__ in REPETITIONS


def run(estimator: Any, check: Any) -> None:
    """One check, with exact fits where it compares predictions."""
    check(exact(estimator) if check.func.__name__ in REPETITIONS else estimator)


def run_with_arrays_of_other_libraries() -> None:
    """The checks that scikit-learn skips unless scipy was imported with SCIPY_ARRAY_API=1, on every estimator."""
    for name, estimator in found().items():
        settings = [*QUICK.get(name, [{}]), *SLOW.get(name, [])][0]
        seen = [check for _, check in estimator_checks_generator(estimator(**settings)) if "array_api" in str(check)]
        assert seen, name
        for check in seen:
            check(estimator(**settings))
