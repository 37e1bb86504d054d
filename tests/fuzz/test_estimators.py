"""Every estimator on any parameters and data: a fit with a sound certificate, or a refusal in one sentence."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import issparse

from bidual import ZCAWhitening
from bidual.estimators import ESTIMATORS
from fuzz.judging import judged
from fuzz.samples import parameters, samples, targets
from fuzz.scale import tried

AXES = {"CNN": 4, "Attention": 3}
NAMES = list(ESTIMATORS)


@pytest.mark.parametrize("name", NAMES)
@tried(10)
@given(data=st.data())
def test_fit_and_predict(name: str, data: st.DataObject) -> None:
    family = ESTIMATORS[name]
    X = data.draw(samples(next((axes for word, axes in AXES.items() if word in name), 2)))
    y = data.draw(targets(X, name.endswith(("Classifier", "ClassifierCV"))))
    estimator = family(**data.draw(parameters(family)))
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, y)
        _check_fitted(estimator, X)


def _check_fitted(estimator: Any, X: Any) -> None:
    certificate = getattr(estimator, "certificate_", None)
    if certificate is not None:
        assert certificate.dual <= certificate.primal * (1 + 1e-8) or not np.isfinite(certificate.primal)
    assert len(estimator.predict(X)) == (X if issparse(X) else np.asarray(X)).shape[0]


X = np.random.default_rng(0).standard_normal((8, 2))


@cache
def _fitted(family: Any) -> Any:
    return family(activation="gated_relu", n_gates=3).fit(X, np.arange(8) % 2)


@tried(15)
@given(st.data())
def test_weights_and_new_samples(data: st.DataObject) -> None:
    family = ESTIMATORS[data.draw(st.sampled_from(["ConvexMLPRegressor", "ConvexMLPClassifier"]))]
    fitted = _fitted(family)
    other = data.draw(samples(data.draw(st.sampled_from([2, 3]))))
    weight = data.draw(
        st.sampled_from(
            [
                None,
                1.0,
                "x",
                [1.0] * 8,
                [0.0] * 8,
                [-1.0] * 8,
                [np.nan] * 8,
                [1e300] * 8,
                [1e-300] * 8,
                [[1.0]] * 8,
                [None] * 8,
                np.arange(8),
                np.zeros((8, 2)),
                {},
            ]
        )
    )
    with judged():
        fitted.predict(other)
    with judged():
        fitted.score(other, data.draw(targets(other, True)))
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        family(activation="gated_relu", n_gates=3, max_time=0.05).fit(X, np.arange(8) % 2, sample_weight=weight)


@tried(20)
@given(data=st.data())
def test_whitening(data: st.DataObject) -> None:
    X = data.draw(samples())
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whitening = ZCAWhitening().fit(X)
        whitening.transform(data.draw(samples()))
