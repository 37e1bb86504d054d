"""Every concrete class that discovery finds keeps the contract of its base, over several seeds."""

import pytest
import torch
from scipy.sparse import csr_array

from bidual.architectures import Architecture
from bidual.distributed import Ranks, run_on_leader
from bidual.gauges import GAUGES, Gauge
from bidual.losses import LOSSES, Loss
from bidual.losses.datafit import Datafit
from bidual.losses.decayed_bias import DecayedBias
from bidual.numerics.sparse import from_scipy
from bidual.operators import LiftedOperator, PooledOperator
from bidual.operators.stacked import StackedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.testing import (
    check_architecture,
    check_datafit,
    check_gauge,
    check_loss,
    check_operator,
    concrete_subclasses,
    example_targets,
)

SEEDS = range(3)
LOSS_CLASSES = [cls for cls in concrete_subclasses(Loss) if cls is not DecayedBias]  # whose last row is another loss
ARCHITECTURES = concrete_subclasses(Architecture)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def example_operators(seed: int) -> list[LiftedOperator]:
    rng = generator(seed)
    examples = [cls.example(rng) for cls in ARCHITECTURES]
    lifted = [architecture.lift(X, c) for architecture, X in examples for c in (1, 3)]
    lifted += [one.lift(from_scipy(csr_array(X.numpy())), 2) for one, X in examples if one.takes_sparse]
    pooled = [operator for operator in lifted if isinstance(operator, PooledOperator)]
    stacked = [StackedOperator(operator, operator.block_shape[0]) for operator in pooled]
    X, gates = (torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((9, 4), (4, 6)))
    tiled = TiledOperator(MappedRows(X.numpy()), gates, 2, torch.float64, tile_bytes=1000)
    return [*lifted, *stacked, tiled, *(on_one_rank(operator) for operator in (tiled, lifted[0]))]


def on_one_rank(operator: LiftedOperator) -> LiftedOperator:
    sharded = run_on_leader(Ranks(), operator, lambda whole: whole)
    assert sharded is not None
    return sharded


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cls", LOSS_CLASSES)
def test_loss(cls: type[Loss], seed: int) -> None:
    check_loss(cls(), generator(seed))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cls", LOSS_CLASSES)
def test_datafit(cls: type[Loss], seed: int, intercept: bool) -> None:
    rng, loss = generator(seed), cls()
    weight = None if seed == 0 else 0.2 + torch.rand(9, generator=rng, dtype=torch.float64)
    check_datafit(Datafit(loss, example_targets(loss, 9, 1 + seed, rng), weight, intercept), rng)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cls", concrete_subclasses(Gauge))
def test_gauge(cls: type[Gauge], seed: int) -> None:
    check_gauge(cls(), generator(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_operator(seed: int) -> None:
    for operator in example_operators(seed):
        check_operator(operator, generator(seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cls", ARCHITECTURES)
def test_architecture(cls: type[Architecture], seed: int) -> None:
    check_architecture(cls, generator(seed))


def test_every_operator_is_checked() -> None:
    """As what some architecture lifts to, as a stack of such blocks, on disk, or on ranks."""
    assert {type(operator) for operator in example_operators(0)} == set(concrete_subclasses(LiftedOperator))


def test_every_loss_and_gauge_is_registered_under_its_name() -> None:
    assert set(LOSS_CLASSES) <= set(LOSSES.values())  # other tests may have defined more
    assert set(concrete_subclasses(Gauge)) <= set(GAUGES.values())
    assert all(cls.name == name for registry in (LOSSES, GAUGES) for name, cls in registry.items())
