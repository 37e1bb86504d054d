"""scikit-learn's own conformance checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from bidual.estimators import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ConvexMLPRegressorCV

SMALL = {"patterns": 10, "tol": 1e-4}
CV = {**SMALL, "n_betas": 3, "cv": 3}


@parametrize_with_checks(
    [
        ConvexMLPClassifier(**SMALL),
        ConvexMLPRegressor(**SMALL),
        ConvexMLPClassifierCV(**CV),
        ConvexMLPRegressorCV(**CV),
    ]
)
def test_conformance(estimator, check):
    check(estimator)
