"""Estimators that choose beta by cross-validation: scores, folds, metadata, and what they refuse."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import accuracy_score, get_scorer, get_scorer_names, log_loss, make_scorer, r2_score, roc_auc_score
from sklearn.model_selection import (
    BaseCrossValidator,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bidual
from bidual import (
    ConvexAttentionRegressorCV,
    ConvexClassifierCV,
    ConvexCNNClassifierCV,
    ConvexMLPClassifier,
    ConvexMLPClassifierCV,
    ConvexMLPRegressor,
    ConvexMLPRegressorCV,
    load,
)
from bidual.estimators.cross_validation import _middle_of_best

random = np.random.default_rng(0)
X = random.standard_normal((40, 4))
y = np.where(X[:, 0] + 0.5 * random.standard_normal(40) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * random.standard_normal(40), [-0.5, 0.5])
TARGETS = X[:, 0] * X[:, 1] + 0.1 * random.standard_normal(40)
WEIGHT = random.uniform(0.1, 3.0, 40)
LINEAR: dict[str, Any] = {"activation": "linear", "n_betas": 3, "cv": 3, "tol": 1e-3}

SMALL: dict[str, dict[str, Any]] = {
    "ConvexMLP": {"activation": "gated_relu", "n_gates": 5},
    "ConvexCNN": {"image_shape": (1, 4), "kernel_size": 2, "n_gates": 3},
    "ConvexAttention": {"token_shape": (2, 2), "n_gates": 3},
    "ConvexParallel": {"activation": "gated_relu", "n_subnetworks": 4, "widths": 2},
    "Convex": {},
}
FAMILIES = [(family, kind) for family in SMALL for kind in ("Classifier", "Regressor")]


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize(("family", "kind"), FAMILIES)
def test_every_family_has_a_cross_validated_version_that_is_saved(family: str, kind: str, tmp_path: Path) -> None:
    plain, chosen = getattr(bidual, f"{family}{kind}"), getattr(bidual, f"{family}{kind}CV")
    targets = y if kind == "Classifier" else TARGETS
    model = chosen(n_betas=2, cv=2, tol=1e-2, **SMALL[family]).fit(X, targets)
    assert model.cv_scores_.shape == (2, 2) == (len(model.betas_), model.n_splits_)
    assert model.beta_ == model.betas_[model.best_index_]
    assert model.best_score_ == model.cv_scores_.mean(1).max()
    same = plain(beta=model.beta_, tol=1e-2, **SMALL[family]).fit(X, targets)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is chosen
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for name in ("cv_scores_", "betas_", "best_score_", "best_index_", "n_splits_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


def by_hand(model: Any, plain: Any, targets: Any, weight: np.ndarray, judges: dict[Any, Any]) -> dict[Any, np.ndarray]:
    """The same scores from single fits: each fold's beta is the same share of its own beta_max."""
    scores = {name: np.empty((len(model.betas_), len(model.cv))) for name in judges}
    for fold, (train, test) in enumerate(model.cv):
        part = X[train], targets[train], weight[train]
        largest = plain.set_params(beta="auto").fit(*part).beta_max_
        for k, beta in enumerate(model.betas_):
            plain.set_params(beta=beta / model.beta_max_ * largest).fit(*part)
            for name, judge in judges.items():
                scores[name][k, fold] = judge(plain, X[test], targets[test], weight[test])
    return scores


CLASSES: dict[Any, Any] = {
    "roc_auc": lambda model, X, y, w: roc_auc_score(y, model.decision_function(X), sample_weight=w),
    "accuracy": lambda model, X, y, w: accuracy_score(y, model.predict(X), sample_weight=w),
    "neg_log_loss": lambda model, X, y, w: -log_loss(y, model.predict_proba(X), sample_weight=w),
    None: lambda model, X, y, w: accuracy_score(y, model.predict(X), sample_weight=w),
}
NUMBERS: dict[Any, Any] = {
    "r2": lambda model, X, y, w: r2_score(y, model.predict(X), sample_weight=w),
    None: lambda model, X, y, w: -np.average((model.predict(X) - y) ** 2 / 2, weights=w),
}
KINDS: dict[str, tuple[Any, ...]] = {
    "Classifier": (ConvexMLPClassifierCV, ConvexMLPClassifier, y, "log_loss", CLASSES),
    "Regressor": (ConvexMLPRegressorCV, ConvexMLPRegressor, 5 + TARGETS, "squared", NUMBERS),
}


@pytest.mark.parametrize("weight", [np.ones(40), WEIGHT], ids=["equal", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_single_fits(kind: str, weight: np.ndarray) -> None:
    family, plain, targets, loss, judges = KINDS[kind]
    settings: dict[str, Any] = {"activation": "linear", "loss": loss, "tol": 1e-6}
    model = family(n_betas=2, beta_ratio=0.1, cv=list(KFold(2).split(X)), cv_tol=1e-6, **settings)
    found = {scoring: model.set_params(scoring=scoring).fit(X, targets, weight).cv_scores_ for scoring in judges}
    expected = by_hand(model, plain(**settings), targets, weight, judges)
    for scoring in judges:
        np.testing.assert_allclose(found[scoring], expected[scoring], atol=2e-3)
        assert np.ptp(expected[scoring]) > 5e-3  # or the comparison would say nothing


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([1, 2, 2, 2, 1], 2), ([2, 2, 1, 2, 2], 1), ([1, 2, 2, 1, 1], 1), ([0, 0, 0, 0, 3], 4), ([0, np.inf, 0, 0, 0], 1)],
)
@pytest.mark.parametrize("falling", [True, False])
def test_the_middle_of_equal_scores_is_chosen_or_the_larger_beta_of_two(
    scores: list, chosen: int, falling: bool
) -> None:
    betas = np.array([16.0, 8.0, 4.0, 2.0, 1.0])
    order = slice(None) if falling else slice(None, None, -1)
    found = _middle_of_best(betas[order], np.array(scores, dtype=float)[order])
    assert betas[order][found] == betas[chosen]


def test_held_out_says_what_networks_were_judged_by() -> None:
    model = ConvexMLPClassifierCV(**LINEAR).fit(X, y)
    assert model.held_out[0] == "accuracy"
    assert model.set_params(scoring="roc_auc").fit(X, y).held_out[0] == "roc_auc"
    numbers = ConvexMLPRegressorCV(**LINEAR).fit(X, TARGETS)
    assert numbers.held_out[0] == "loss"
    np.testing.assert_array_equal(numbers.held_out[1], -numbers.cv_scores_)
    assert numbers.set_params(scoring="r2").held_out[0] == "loss"


def test_a_function_sees_a_fitted_network_and_the_held_out_rows_as_they_came() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    seen = []

    def sparse(estimator: Any, samples: Any, targets: Any) -> float:
        seen.append((list(samples.columns), set(targets), estimator.n_neurons_, estimator.beta_))
        return -estimator.n_neurons_

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConvexMLPClassifierCV(scoring=sparse, **LINEAR).fit(frame, y, WEIGHT)  # which has no sample_weight
    assert {columns == list("abcd") for columns, *_ in seen} == {True}
    assert {frozenset(labels) for _, labels, *_ in seen} == {frozenset({"yes", "no"})}
    assert len(seen) == 9
    assert len({beta for *_, beta in seen}) == 9
    best = np.flatnonzero(model.cv_scores_.mean(1) == model.cv_scores_.mean(1).max())
    assert model.best_index_ == best[(len(best) - 1) // 2]  # the middle one of the fewest neurons


def test_scores_use_the_weights_only_where_the_scorer_takes_them() -> None:
    seen = []

    def weighted(estimator: Any, samples: Any, targets: Any, sample_weight: Any = None) -> float:
        seen.append(sample_weight)
        return 0.0

    splits = list(KFold(2).split(X))
    ConvexMLPClassifierCV(scoring=weighted, **LINEAR | {"cv": splits, "n_betas": 1}).fit(X, y, WEIGHT)
    np.testing.assert_array_equal(seen[0], WEIGHT[splits[0][1]])
    unweighted = make_scorer(lambda truth, guess: float((truth == guess).mean()))
    ConvexMLPClassifierCV(scoring=unweighted, **LINEAR).fit(X, y, WEIGHT)


def leaking() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten groups of four near-copies; labels belong to groups and say nothing about others."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(10), 4)
    centres = rng.standard_normal((10, 12))
    return centres[groups] + 0.01 * rng.standard_normal((40, 12)), rng.permutation(np.arange(10) % 2)[groups], groups


@pytest.mark.parametrize("splitter", [GroupKFold(5), StratifiedGroupKFold(5), LeaveOneGroupOut()])
def test_only_group_aware_folds_punish_what_a_group_leaks(splitter: Any) -> None:
    samples, labels, groups = leaking()
    settings: dict[str, Any] = {"activation": "linear", "n_betas": 4, "tol": 1e-2, "scoring": "accuracy"}
    blind = ConvexMLPClassifierCV(cv=KFold(5, shuffle=True, random_state=0), **settings).fit(samples, labels)
    aware = ConvexMLPClassifierCV(cv=splitter, **settings).fit(samples, labels, groups=groups)
    assert blind.best_score_ > 0.95
    assert aware.best_score_ < 0.75
    assert aware.n_splits_ == splitter.get_n_splits(samples, labels, groups)


def test_folds_come_as_a_number_a_splitter_pairs_or_masks() -> None:
    splits = list(StratifiedKFold(3).split(X, y))
    masks = [(np.isin(np.arange(40), train), np.isin(np.arange(40), test)) for train, test in splits]
    found = [
        ConvexMLPClassifierCV(**LINEAR | {"cv": cv}).fit(X, y).cv_scores_
        for cv in (3, np.int64(3), StratifiedKFold(3), splits, iter(splits), masks)
    ]
    for scores in found[1:]:
        np.testing.assert_array_equal(scores, found[0])


def test_a_splitter_of_ones_own_gets_the_groups() -> None:
    class Halves(BaseCrossValidator):
        def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
            return 2

        def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Any]:
            yield from (np.flatnonzero(groups == "a"), np.flatnonzero(groups == "b"))

    groups = np.array(["a", "b"])[np.arange(40) % 2]
    own = ConvexMLPClassifierCV(**LINEAR | {"cv": Halves()}).fit(X, y, groups=groups)
    same = ConvexMLPClassifierCV(**LINEAR | {"cv": GroupKFold(2)}).fit(X, y, groups=groups)
    np.testing.assert_array_equal(np.sort(own.cv_scores_, 1), np.sort(same.cv_scores_, 1))


def test_two_jobs_find_what_one_finds() -> None:
    _, _, groups = leaking()
    settings = LINEAR | {"activation": "gated_relu", "n_gates": 4, "cv": GroupKFold(3), "loss": "log_loss"}
    one, two = (
        ConvexMLPClassifierCV(scoring="neg_log_loss", callback=lambda record: None, n_jobs=n_jobs, **settings).fit(
            X, y, WEIGHT, groups=groups
        )
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.cv_scores_, two.cv_scores_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_scores_of_tokens_are_means_over_tokens(tmp_path: Path) -> None:
    sequences = X.reshape(40, 2, 2)
    targets = sequences[:, :, :1] * 2
    splits = list(KFold(2).split(X))
    settings: dict[str, Any] = {"activation": "linear", "tol": 1e-6}
    model = ConvexAttentionRegressorCV(betas=[0.5], cv=splits, cv_tol=1e-6, **settings).fit(sequences, targets, WEIGHT)
    for fold, (train, test) in enumerate(splits):
        plain = bidual.ConvexAttentionRegressor(**settings).fit(sequences[train], targets[train], WEIGHT[train])
        plain.set_params(beta=0.5 / model.beta_max_ * plain.beta_max_)
        plain.fit(sequences[train], targets[train], WEIGHT[train])
        errors = ((plain.predict(sequences[test]) - targets[test]) ** 2 / 2).mean((1, 2))
        assert model.cv_scores_[0, fold] == pytest.approx(-np.average(errors, weights=WEIGHT[test]), rel=1e-3)
    flat = ConvexAttentionRegressorCV(output="tokens", scoring="r2", betas=[0.5], cv=2, **settings)
    assert flat.fit(sequences, targets.reshape(40, 2)).cv_scores_.shape == (1, 2)


def test_images_keep_their_axes_for_a_scorer() -> None:
    shapes = []

    def look(estimator: Any, images: Any, targets: Any) -> float:
        shapes.append(images.shape[1:])
        return float(estimator.score(images, targets))

    ConvexCNNClassifierCV(kernel_size=2, n_gates=3, n_betas=1, cv=2, scoring=look).fit(X.reshape(40, 1, 2, 2), y)
    assert set(shapes) == {(1, 2, 2)}


@pytest.mark.usefixtures("routing")
def test_groups_go_through_a_pipeline_and_weights_to_fit_and_scorer() -> None:
    samples, labels, groups = leaking()
    scorer = get_scorer("accuracy").set_score_request(sample_weight=True)
    settings: dict[str, Any] = {"activation": "linear", "n_betas": 2, "tol": 1e-2, "scoring": scorer}
    model = ConvexMLPClassifierCV(cv=GroupKFold(5), **settings).set_fit_request(sample_weight=True)
    pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
    fitted = pipeline.fit(samples, labels, groups=groups, sample_weight=WEIGHT)[-1]
    with sklearn.config_context(enable_metadata_routing=False):
        scaled = StandardScaler().fit_transform(samples)
        direct = ConvexMLPClassifierCV(cv=GroupKFold(5), **settings).fit(scaled, labels, WEIGHT, groups=groups)
        unweighted = ConvexMLPClassifierCV(cv=GroupKFold(5), **settings).fit(scaled, labels, groups=groups)
    np.testing.assert_array_equal(fitted.cv_scores_, direct.cv_scores_)
    assert (fitted.cv_scores_ != unweighted.cv_scores_).any()


@pytest.mark.usefixtures("routing")
def test_groups_go_through_cross_validate_to_both_splitters() -> None:
    samples, labels, groups = leaking()
    model = ConvexMLPClassifierCV(activation="linear", n_betas=2, tol=1e-2, cv=GroupKFold(4))
    found = cross_validate(
        model, samples, labels, cv=GroupKFold(5), params={"groups": groups}, return_estimator=True, return_indices=True
    )
    with sklearn.config_context(enable_metadata_routing=False):
        for inner, train in zip(found["estimator"], found["indices"]["train"], strict=True):
            direct = ConvexMLPClassifierCV(activation="linear", n_betas=2, tol=1e-2, cv=GroupKFold(4))
            direct.fit(samples[train], labels[train], groups=groups[train])
            np.testing.assert_array_equal(inner.cv_scores_, direct.cv_scores_)


@pytest.mark.usefixtures("routing")
def test_requests_decide_under_other_names_and_in_workers() -> None:
    _, _, groups = leaking()
    scorer = make_scorer(lambda truth, guess, bonus: float(np.mean(bonus))).set_score_request(bonus="extra")
    cv = GroupKFold(2).set_split_request(groups="patients")
    for n_jobs in (1, 2):
        model = ConvexMLPClassifierCV(**LINEAR | {"cv": cv, "n_betas": 1, "n_jobs": n_jobs}, scoring=scorer)
        model.fit(X, y, patients=groups, extra=np.full(40, 3.0))
        assert (model.cv_scores_ == 3.0).all()
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        ConvexMLPClassifierCV(scoring="accuracy", **LINEAR).fit(X, y, WEIGHT)
    ConvexMLPClassifierCV(**LINEAR).fit(X, y, WEIGHT)  # the held-out loss is weighted by itself
    with pytest.raises(TypeError, match="unexpected argument"):
        ConvexMLPClassifierCV(**LINEAR).fit(X, y, colour=groups)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "probabilities of hinge": (
        {"scoring": "neg_log_loss", "loss": "hinge"},
        r"scoring='neg_log_loss' needs predict_proba, which ConvexMLPClassifierCV with loss='hinge' does not have",
    ),
    "no scorer": ({"scoring": "roc"}, r"scoring must be None, a name in .*, got 'roc'"),
    "two scorers": ({"scoring": ["accuracy", "f1"]}, "scoring must be None, a name"),
    "a metric": ({"scoring": accuracy_score}, "looks like it is a metric function rather than a scorer"),
    "several numbers": ({"scoring": lambda *_: np.ones(2)}, "scoring=.* must give one number for each fold, got array"),
    "no number": ({"scoring": lambda *_: float("nan")}, "must give one number for each fold, got nan .* fold 0"),
    "one fold": ({"cv": 1}, "cv must be None, a whole number of at least 2, a splitter .*, got 1"),
    "a name as folds": ({"cv": "five"}, "cv must be None, .*, got 'five'"),
    "more folds than samples": (
        {"cv": 41},
        "Cannot have number of splits n_splits=41 greater than the number of samples",
    ),
    "no groups": (
        {"cv": GroupKFold(3)},
        r"cv=GroupKFold\(.*needs the group of every sample, got none; call fit\(X, y, g",
    ),
    "no folds": ({"cv": iter(())}, "has no folds"),
    "three parts": ({"cv": [([0], [1], [2])]}, r"a fold of cv must be \(train, test\).*got \(\[0\], \[1\], \[2\]\)"),
    "no pairs": ({"cv": [1, 2]}, "a fold of cv must be"),
    "beyond the samples": ({"cv": [([0, 1], [40])]}, "row numbers from 0 to 39"),
    "empty part": ({"cv": [(np.arange(40), [])]}, "not empty"),
    "no jobs": ({"n_jobs": 0}, "n_jobs must be None or a whole number other than 0, got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_refused_in_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, message = BAD[name]
    if "number" not in name:  # which is only known when a network is scored
        monkeypatch.setattr(ConvexMLPClassifierCV, "_program", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=message) as refusal:
        ConvexMLPClassifierCV(**LINEAR | parameters).fit(X, y)
    assert "\n" not in str(refusal.value)


BAD_FITS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "groups that are ignored": (
        ConvexMLPClassifierCV(),
        {"groups": np.arange(40)},
        "cv=5 ignores them; use a splitter",
    ),
    "groups and pairs": (
        ConvexMLPClassifierCV(cv=[([0], [1])]),
        {"groups": np.arange(40)},
        "groups were given, but cv=.* ignores them",
    ),
    "too few groups": (ConvexMLPClassifierCV(cv=GroupKFold(3)), {"groups": [1, 2]}, "inconsistent numbers of samples"),
    "a fold of weight zero": (
        ConvexMLPClassifierCV(cv=KFold(4)),
        {"sample_weight": np.repeat([0.0, 1.0], [10, 30])},
        "fold 0 of cv has no held-out sample of positive weight",
    ),
    "two classes only": (
        ConvexMLPClassifierCV(scoring="roc_auc"),
        {"y": THREE},
        "scoring='roc_auc' cannot score the held-",
    ),
    "a score of classes": (
        ConvexMLPRegressorCV(scoring="roc_auc"),
        {"y": TARGETS},
        "use one for regressors such as r2",
    ),
    "a score of numbers": (
        ConvexMLPRegressorCV(scoring="accuracy"),
        {"y": TARGETS},
        "cannot score the held-out part of f",
    ),
    "class names as numbers": (ConvexMLPClassifierCV(scoring="r2"), {}, "scoring='r2' cannot score the held-out part"),
    "a class that is not held out": (
        ConvexMLPClassifierCV(
            scoring="neg_log_loss", loss="log_loss", cv=[(np.arange(40), np.flatnonzero(THREE == 1))]
        ),
        {"y": THREE},
        "scoring='neg_log_loss' cannot score the held-out part of fold 0: ",
    ),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_fits_are_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given, message = BAD_FITS[name]
    monkeypatch.setattr(type(model), "_program", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=message):
        model.fit(**{"X": X, "y": y} | given)
    assert not hasattr(model, "classes_")


def test_metadata_without_routing_is_refused() -> None:
    with pytest.raises(TypeError, match="fit got colour, which only metadata routing can pass on"):
        ConvexMLPClassifierCV().fit(X, y, colour=y)


def test_an_iterator_is_read_once() -> None:
    model = ConvexClassifierCV(cv=iter(list(KFold(2).split(X))), n_betas=1).fit(X, y)
    with pytest.raises(ValueError, match="an iterator can be read once only"):
        model.fit(X, y)


SUITED = [
    (bidual.ConvexClassifierCV(loss="log_loss"), np.arange(40) % 2),
    (bidual.ConvexRegressorCV(), np.arange(40) % 3 + 1),
]


@pytest.mark.parametrize(("model", "targets"), SUITED, ids=["classifier", "regressor"])
def test_every_scorer_of_scikit_learn_that_can_score_a_trained_network_does(model: Any, targets: np.ndarray) -> None:
    """Named scorers are tried on a constant network first, which must not be refused where a trained one is not."""
    plain, scored = model.set_params(betas=[5.0], cv=2, tol=0.1, cv_tol=0.5, scoring=None).fit(X, targets), 0
    for name in get_scorer_names():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                get_scorer(name)(plain, X, targets)
            except (AttributeError, TypeError, ValueError):
                with pytest.raises(ValueError, match=f"scoring='{name}'"):
                    clone(model).set_params(scoring=name).fit(X, targets)
            else:
                scored += 1
                assert np.isfinite(clone(model).set_params(scoring=name).fit(X, targets).cv_scores_).all()
    assert scored > 10


def test_too_few_samples_for_folds_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"with 2 folds needs as many samples of every class .*; give cv"):
        ConvexMLPClassifierCV(**LINEAR | {"cv": None}).fit(X[:2], ["a", "b"])
    with pytest.raises(ValueError, match=r"with 2 folds needs as many samples .*; give cv"):
        ConvexMLPRegressorCV(**LINEAR | {"cv": None}).fit(X[:1], [1.0])


@pytest.mark.parametrize("kind", ["to_sparse_csr", "to_sparse_csc", "to_sparse_coo", "requires_grad_"])
def test_tensors_of_all_kinds_are_scored(kind: str) -> None:
    given, targets = getattr(torch.tensor(X), kind)(), torch.tensor(TARGETS, requires_grad=True)
    model = ConvexMLPRegressorCV(**LINEAR | {"tol": 1e-6}, cv_tol=1e-6, scoring="r2")
    expected = clone(model).fit(X, TARGETS)
    np.testing.assert_allclose(model.fit(given, targets).cv_scores_, expected.cv_scores_, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "value"), [("cv", KFold(3)), ("scoring", make_scorer(accuracy_score))], ids=["cv", "scoring"]
)
def test_splitters_and_functions_are_not_saved(name: str, value: Any, tmp_path: Path) -> None:
    model = ConvexMLPClassifierCV(**LINEAR | {name: value}).fit(X, y)
    message = rf"cannot save {name}=.*no functions, splitters.*; call set_params\({name}=None\) first"
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model.safetensors")
    model.set_params(**{name: None}).save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict(X), model.predict(X))
