"""BM Lemma 3.1: the gauge is the cheapest factorisation, for every norm pair that is shipped."""

import pytest
import torch

from bidual.gauges import GAUGES, Factors
from helpers.draws import normal

SHIPPED = dict(GAUGES)  # before other tests define more
PAIRS = pytest.mark.parametrize("name", GAUGES)


@PAIRS
@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 2, 6), (3, 4, 1), (2, 1, 4)])
def test_split_attains_the_gauge(name: str, shape: tuple[int, int, int]) -> None:
    gauge, Z = GAUGES[name](), normal(*shape)
    factors = gauge.split(Z)
    torch.testing.assert_close(factors.U @ factors.W.mT, Z)
    assert gauge.factor_penalty(factors) == pytest.approx(gauge.value(Z), rel=1e-12)


@PAIRS
def test_no_random_factors_are_cheaper(name: str) -> None:
    gauge = GAUGES[name]()
    for seed in range(100):
        U, W = normal(2, 4, 5, seed=seed), 10 ** (seed % 3 - 1.0) * normal(2, 3, 5, seed=1000 + seed)
        assert gauge.factor_penalty(Factors(U, W)) >= gauge.value(U @ W.mT) * (1 - 1e-12)


@PAIRS
def test_no_other_factors_of_the_same_blocks_are_cheaper(name: str) -> None:
    gauge, Z = GAUGES[name](), normal(2, 4, 3)
    U, W = gauge.split(Z)
    for seed in range(100):
        mix = torch.eye(U.shape[2], dtype=torch.float64) + 0.1 * normal(U.shape[2], U.shape[2], seed=seed)
        assert gauge.factor_penalty(Factors(U @ mix, W @ torch.linalg.inv(mix).T)) >= gauge.value(Z) * (1 - 1e-12)


@PAIRS
def test_more_neurons_than_needed_do_not_help(name: str) -> None:
    """Descent on wide factors of a fixed Z, through the exact penalty Z - U W^T = 0 solved for W, stays above it."""
    gauge, Z = GAUGES[name](), normal(1, 3, 2)
    for seed in range(50):
        U = normal(1, 3, 7, seed=seed)
        W = (torch.linalg.pinv(U) @ Z).mT
        balance = (torch.linalg.vector_norm(W) / torch.linalg.vector_norm(U)).sqrt()
        assert gauge.factor_penalty(Factors(U * balance, W / balance)) >= gauge.value(Z) * (1 - 1e-12)


def test_the_pairs_differ_with_several_outputs_and_agree_with_one() -> None:
    wide, narrow = normal(2, 4, 3), normal(2, 4, 1)
    assert len({round(gauge().value(wide), 9) for gauge in SHIPPED.values()}) == len(SHIPPED)
    assert len({round(gauge().value(narrow), 9) for gauge in SHIPPED.values()}) == 3  # |.|_C for three norms C
