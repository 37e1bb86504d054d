"""Real data: at least as accurate as scikit-learn's default network, with a certificate."""

import warnings

import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPClassifierCV


@pytest.mark.parametrize("load", [load_breast_cancer, pytest.param(load_digits, marks=pytest.mark.slow)])
def test_not_below_the_default_network(load):
    X, y = load(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
    ours = make_pipeline(StandardScaler(), ConvexMLPClassifierCV(tol=1e-3)).fit(train, y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = make_pipeline(StandardScaler(), MLPClassifier(random_state=0)).fit(train, y_train)
    assert ours.score(test, y_test) >= theirs.score(test, y_test)
    assert ours[-1].certificate_.relative_gap <= 1e-3
