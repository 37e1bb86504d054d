"""Real data: at least as accurate as scikit-learn's default network, with a certificate."""

import warnings

import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV
from bidual.problems.certificate import Scope

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("load", "activation"),
    [
        (load_breast_cancer, "gated_relu"),
        pytest.param(load_breast_cancer, "relu", marks=SLOW),
        pytest.param(load_digits, "gated_relu", marks=SLOW),
        pytest.param(load_digits, "relu", marks=SLOW),
    ],
)
def test_not_below_the_default_network(load, activation):
    X, y = load(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = make_pipeline(StandardScaler(), ConvexMLPClassifierCV(activation=activation, tol=1e-3))
        ours.fit(train, y_train)
        theirs = make_pipeline(StandardScaler(), MLPClassifier(random_state=0)).fit(train, y_train)
    assert ours.score(test, y_test) >= theirs.score(test, y_test)
    certificate = ours[-1].certificate_
    assert certificate.scope is (Scope.ALL_PATTERNS if activation == "relu" else Scope.BLOCKS)
    assert 0 <= certificate.relative_gap <= (1 if activation == "relu" else 1e-3)


@pytest.mark.parametrize(("components", "largest_gap"), [(2, 1e-3), (None, 1)])
def test_relu_on_breast_cancer_is_proved_at_low_rank_and_honest_at_high_rank(components, largest_gap):
    X, y = load_breast_cancer(return_X_y=True)
    X = PCA(components).fit_transform(StandardScaler().fit_transform(X))[::3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = ConvexMLPClassifier(tol=1e-3).fit(X, y[::3])
    assert fit.certificate_.scope is Scope.ALL_PATTERNS
    assert 0 <= fit.certificate_.relative_gap <= largest_gap
    assert fit.score(X, y[::3]) > 0.93
