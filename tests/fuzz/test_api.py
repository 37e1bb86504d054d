"""`certify`, paths, `load`, `report` and certificates from Python, on anything that Python can hand over."""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

import bidual
from bidual import Certificate, ConvexMLPRegressor, Scope, certify, regularization_path, regularization_paths
from bidual.architectures import GatedMLP
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.problem import Problem
from bidual.testing import own_checks_only
from fuzz.judging import judged
from fuzz.samples import ODD, samples, targets
from fuzz.scale import tried

QUICK: dict[str, Any] = {"activation": "gated_relu", "n_gates": 3, "max_time": 0.05}


def _networks() -> tuple[Any, ...]:
    torch.manual_seed(0)
    good = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    huge = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        huge[0].weight.mul_(1e300)
    odd = (
        nn.Sequential(),
        nn.Linear(2, 1),
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)),
        nn.LazyLinear(2),
    )
    return (
        good,
        good,
        good,
        huge,
        *odd,
        MLPRegressor(),
        MLPClassifier(),
        ConvexMLPRegressor(),
        "no.onnx",
        None,
        3,
        good.state_dict(),
    )


NETWORKS = _networks()


@tried(12)
@given(st.data())
def test_certify(data: st.DataObject) -> None:
    X = data.draw(samples())
    y = data.draw(targets(X, data.draw(st.booleans())))
    beta = data.draw(st.sampled_from([0.1, 0.1, 1e-300, 1e300, *ODD]))
    loss = data.draw(st.sampled_from(["squared", "squared", "log_loss", "hinge", "absolute", *ODD]))
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = certify(data.draw(st.sampled_from(NETWORKS)), X, y, beta, loss, tol=0.3, max_time=0.05, n_starts=3)
        assert found.lower_bound <= found.objective * (1 + 1e-8) or math.isnan(found.objective)


@tried(12)
@given(st.data())
def test_certify_options(data: st.DataObject) -> None:
    X, y = np.random.default_rng(0).standard_normal((6, 2)), np.arange(6.0)
    options = data.draw(
        st.dictionaries(st.sampled_from(["tol", "oracle", "n_starts", "beta", "loss"]), st.sampled_from(ODD))
    )
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        certify(NETWORKS[0], X, y, **{"beta": 0.1, "tol": 0.3, "n_starts": 3, "max_time": 0.05} | options)


@tried(12)
@given(st.data())
def test_paths(data: st.DataObject) -> None:
    X = data.draw(samples())
    y = data.draw(targets(X, False))
    names = st.sampled_from(["betas", "n_betas", "ratio", "sample_weight"])
    options = {"n_betas": 2} | data.draw(st.dictionaries(names, st.sampled_from(ODD), max_size=2))
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regularization_path(ConvexMLPRegressor(**QUICK), X, y, **options)
    with judged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seeds = data.draw(st.sampled_from([[0], [], [-1], [10**30], ["x"], None, [0.5]]))
        regularization_paths(ConvexMLPRegressor(**QUICK), X, y, seeds=seeds, **options)


@tried(30)
@given(thing=st.sampled_from([*ODD, *NETWORKS]), title=st.sampled_from([None, "", "<b>", "x" * 500]))
def test_load_and_report(thing: Any, title: str | None) -> None:
    with judged():
        bidual.load(thing)
    with judged():
        bidual.report(thing, title=title)


def _problem() -> Problem:
    """A small gated problem."""
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    architecture = GatedMLP(torch.eye(2).double(), "nuclear", False)
    return Problem(architecture.lift(X, 1), Datafit(Squared(), X[:, :1].abs()), architecture.gauge(), 0.5)


@tried(25)
@given(st.data())
def test_a_changed_certificate_is_no_certificate(data: st.DataObject) -> None:
    """Whatever is changed in it, a recheck refuses it, or both bounds still hold."""
    problem = _problem()
    good = bidual.problems.certificate.certify(problem, torch.zeros(problem.operator.block_shape).double())
    numbers = st.sampled_from([0.0, -1.0, 1e300, math.nan, math.inf, -math.inf, good.primal * 0.9, good.dual + 1e-3])
    tensors = st.sampled_from(
        [torch.zeros(1), torch.zeros(0), torch.full_like(good.dual_point, math.nan), 9 * good.dual_point]
    )
    name = data.draw(st.sampled_from(["primal", "dual", "polar", "scale", "point", "dual_point", "scope"]))
    value = {"point": tensors, "dual_point": tensors, "scope": st.sampled_from(list(Scope))}.get(name, numbers)
    with own_checks_only(), judged():
        changed: Certificate = dataclasses.replace(good, **{name: data.draw(value)})
        str(changed), changed.relative_gap, changed.gap
        if changed.recheck(problem):
            assert changed.dual <= good.primal * (1 + 1e-9)
            assert changed.primal >= good.dual * (1 - 1e-9)
