"""Folds of ReLU networks that are trained together, seen from the estimators."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from bidual import ConvexAttentionRegressorCV, ConvexMLPRegressor, ConvexMLPRegressorCV
from bidual.runtime import crossovers

random = np.random.default_rng(0)
X = random.standard_normal((36, 2))
y = np.maximum(X[:, 0], 0) - np.maximum(X[:, 1] - 0.3, 0) + 0.05 * random.standard_normal(36)
BETAS = [3.0, 0.3, 0.03]
FOLDS = KFold(3)


def cross_validated(**settings: object) -> ConvexMLPRegressorCV:
    return ConvexMLPRegressorCV(betas=BETAS, cv=FOLDS, tol=1e-3, max_time=5.0, **settings)


def test_scores_are_near_those_of_certified_fits() -> None:
    """Rank three: every fit on a fold is exact, at beta times the share of the samples that it trains on."""
    scores = cross_validated().fit(X, y).cv_scores_
    for k, (train, test) in enumerate(FOLDS.split(X)):
        for row, beta in zip(scores, BETAS, strict=True):
            single = ConvexMLPRegressor(beta=beta * 2 / 3, tol=1e-4).fit(X[train], y[train])
            loss = 0.5 * float(np.mean((single.predict(X[test]) - y[test]) ** 2))
            assert -row[k] == pytest.approx(loss, rel=0.2, abs=2e-3)


def test_betas_may_come_in_any_order() -> None:
    falling = cross_validated().fit(X, y)
    rising = cross_validated().set_params(betas=BETAS[::-1]).fit(X, y)
    np.testing.assert_array_equal(falling.cv_scores_, rising.cv_scores_[::-1])
    assert falling.beta_ == rising.beta_


def test_samples_of_weight_zero_change_nothing() -> None:
    """Folds are given, so that they hold the same samples with and without those of weight zero."""
    extra = np.vstack([X, 100 + X[:4]])
    targets, weight = np.append(y, [50.0] * 4), np.append(np.ones(36), np.zeros(4))
    splits = list(FOLDS.split(X))
    plain = cross_validated().set_params(cv=splits).fit(X, y)
    longer = [(np.append(train, [36, 37, 38, 39]), test) for train, test in splits]
    weighted = cross_validated().set_params(cv=longer).fit(extra, targets, sample_weight=weight)
    np.testing.assert_allclose(weighted.cv_scores_, plain.cv_scores_, rtol=1e-6)


def test_a_sample_that_a_fold_trains_on_twice_counts_twice() -> None:
    splits = [(np.append(train, train[:5]), test) for train, test in FOLDS.split(X)]
    twice = cross_validated().set_params(cv=splits).fit(X, y).cv_scores_
    for k, (train, test) in enumerate(splits):
        fold = ConvexMLPRegressorCV(betas=BETAS, cv=[(np.arange(len(train)), len(train) + np.arange(len(test)))])
        rows = np.concatenate([train, test])
        share = 36 / len(rows)  # betas are for all samples that are given
        alone = fold.set_params(betas=[beta / share for beta in BETAS], tol=1e-3, max_time=5.0).fit(X[rows], y[rows])
        np.testing.assert_allclose(twice[:, k], alone.cv_scores_[:, 0], rtol=0.1, atol=1e-3)


def test_targets_of_tokens_are_held_out_with_their_sequence() -> None:
    sequences = random.standard_normal((18, 3, 2))
    targets = np.tanh(sequences @ sequences.transpose(0, 2, 1)) @ sequences
    model = ConvexAttentionRegressorCV(output="tokens", n_betas=3, cv=3, tol=1e-2, max_time=5.0)
    scores = model.fit(sequences, targets).cv_scores_.mean(1)
    nothing = 0.5 * float(np.mean(np.sum((targets - targets.mean((0, 1))) ** 2, 2)))
    assert scores[-1] > -0.9 * nothing  # held-out tokens are predicted better than by a constant


@pytest.mark.parametrize("numbers", [1, 10**9])
def test_batches_of_any_size_score_alike(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = cross_validated().fit(X, y).cv_scores_
    monkeypatch.setattr("bidual.estimators.fold_scores.FOLDS", crossovers.FoldCrossovers(numbers))
    np.testing.assert_allclose(cross_validated().fit(X, y).cv_scores_, usual, rtol=0.15, atol=1e-3)
