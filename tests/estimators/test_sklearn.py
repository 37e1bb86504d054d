"""scikit-learn's own conformance checks, on every estimator that the package has."""

import os
import subprocess
import sys
from typing import Any

import pytest
from sklearn.base import BaseEstimator

import bidual
from helpers.conformance import MINUTES, OVER_PATTERNS, QUICK, SLOW, checks, compares_exact_fits, defaults, found, run


def test_all_estimators_are_public_and_checked() -> None:
    public = {name for name in bidual.__all__ if issubclass(type(getattr(bidual, name)), type)}
    public = {name for name in public if issubclass(getattr(bidual, name), BaseEstimator)}
    assert found().keys() == public
    assert QUICK.keys() | SLOW.keys() <= public
    by_default = {name for name in public if {} in QUICK.get(name, [{}])} | defaults().keys()
    assert public - by_default == MINUTES


@pytest.mark.parametrize(("estimator", "check"), list(checks(QUICK, sorted(found()), slow=False)))
def test_conformance(estimator: Any, check: Any) -> None:
    run(estimator, check)


@pytest.mark.parametrize(("estimator", "check"), list(checks(OVER_PATTERNS, sorted(OVER_PATTERNS), slow=False)))
def test_conformance_of_relu(estimator: Any, check: Any) -> None:
    run(estimator, check)


@pytest.mark.parametrize(("estimator", "check"), list(checks(SLOW, sorted(SLOW), slow=True)))
def test_conformance_of_slow_networks(estimator: Any, check: Any) -> None:
    run(estimator, check)


BY_DEFAULT = [each for each in checks(defaults(), sorted(defaults()), slow=True) if not compares_exact_fits(each)]


@pytest.mark.parametrize(("estimator", "check"), BY_DEFAULT)
def test_conformance_of_defaults(estimator: Any, check: Any) -> None:
    run(estimator, check)


def test_arrays_of_other_libraries_pass_where_scipy_dispatches() -> None:
    """In a process of their own: scipy reads its variable when it is imported."""
    code = "import warnings; warnings.simplefilter('ignore'); from helpers import conformance as it; "
    code += "it.run_with_arrays_of_other_libraries()"
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
