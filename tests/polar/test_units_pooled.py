"""Pooled hands its questions on to the oracle of the rows, merged, and adds what rounding of L* V can cost."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L1, L2, LINF, Norm
from bidual.operators.patches import Convolution, ImagePatches
from bidual.polar import Faces, LocalSearch, NeuronOracle, NormFaces, Pooled, SteepestNeurons, oracle_for
from bidual.testing import own_checks_only
from helpers.draws import normal

UNIT = 2.0**-53


def patches_with_repeats() -> ImagePatches:
    return ImagePatches(normal(4, 1, 4)[[0, 1, 2, 2]], Convolution.of(1, 2, padding=2, pooling=(7,)))


class Told(NeuronOracle):
    """Answers [1, 2], and keeps what it was asked."""

    def __init__(self, X: Tensor) -> None:
        self._take(X)
        self.asked = list[tuple[Tensor, float, Tensor | None]]()

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        self.asked.append((V, above, seeds))
        return SteepestNeurons(Bracket(1.0, 2.0), self.X[:1], self.lengths[:1])

    _steepest = steepest


def test_questions_are_handed_on_with_equal_patches_added_up() -> None:
    patches = patches_with_repeats()
    oracle, V, seeds = Pooled(patches, Told), normal(patches.n_predictions, 2, seed=1), normal(3, 2, seed=2)
    found = oracle.steepest(V, 0.5, seeds)
    merged, above, given = oracle.inner.asked[0]
    spread, rows = patches.spread(V), patches.rows()
    distinct = oracle.X * oracle.lengths[:, None]
    for row, dual in zip(distinct, merged, strict=True):
        same = (rows - row).abs().amax(1) < 1e-12
        torch.testing.assert_close(dual, spread[same].sum(0), rtol=1e-12, atol=1e-14)
    assert above == 0.5
    assert given is seeds
    assert found.bracket.lower == 1.0
    assert torch.equal(found.neurons, oracle.X[:1])


def test_without_a_threshold_or_seeds_all_is_asked_for() -> None:
    patches = patches_with_repeats()
    oracle = Pooled(patches, Told)
    oracle.steepest(normal(patches.n_predictions, 1).float())
    asked, above, seeds = oracle.inner.asked[0]
    assert (asked.dtype, above, seeds) == (torch.float64, 0.0, None)


def test_the_upper_end_grows_by_the_rounding_of_the_spread_duals() -> None:
    """A row of zeros comes more often than any other; every sum has its terms and the depth of the readout."""
    patches = patches_with_repeats()
    oracle, V = Pooled(patches, Told), normal(patches.n_predictions, 2, seed=1)
    zeros = int((patches.rows() == 0).all(1).sum())
    size = patches.magnitude * float(torch.linalg.vector_norm(V))
    assert zeros > 2
    assert oracle._of_readout(V) == pytest.approx((zeros + patches.depth) * UNIT * size, rel=1e-9)
    upper = oracle.steepest(1e6 * V).bracket.upper
    assert upper - 2.0 == pytest.approx(1e6 * oracle._of_readout(V), rel=1e-3)


def test_the_allowance_for_rounding_is_small_and_none_for_nothing() -> None:
    patches = patches_with_repeats()
    oracle, V = Pooled(patches, Faces), normal(patches.n_predictions, 2, seed=1)
    bracket = oracle.steepest(V).bracket
    assert 0 < oracle._of_readout(V) <= 1e-12 * bracket.upper
    assert oracle._of_readout(0 * V) < 1e-300


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (4,)])
def test_one_row_of_duals_per_prediction_is_wanted(shape: tuple[int, ...]) -> None:
    text = rf"^V must have one row per prediction \(4\), got shape \({', '.join(map(str, shape))},?\)\.$"
    with own_checks_only(), pytest.raises(ValueError, match=text):
        Pooled(patches_with_repeats(), Told).steepest(torch.ones(shape))


def test_what_the_inner_oracle_is_the_pooled_one_is() -> None:
    patches = patches_with_repeats()
    search, faces = Pooled(patches, LocalSearch), Pooled(patches, Faces)
    assert (search.proves, faces.proves) == (False, True)
    assert (faces.hidden_norm, faces.output_norm) == (L2, L2)
    assert faces.readout is patches
    assert torch.equal(faces.X, faces.inner.X)
    assert torch.equal(faces.lengths, faces.inner.lengths)


@pytest.mark.parametrize("norms", [(L1, L2), (L2, LINF)])
def test_other_norms_are_refused(norms: tuple[Norm, Norm]) -> None:
    with pytest.raises(ValueError, match="Euclidean"):
        Pooled(patches_with_repeats(), lambda X: NormFaces(X, *norms))


def test_it_is_for_all_rows_in_any_precision_and_for_no_others() -> None:
    patches = ImagePatches(normal(3, 1, 4).round(), Convolution.of(1, 2, pooling=(3,)))
    oracle, rows = Pooled(patches, Told), patches.rows()
    assert oracle.is_for(rows) is True
    assert oracle.is_for(rows.float()) is True
    assert not any(oracle.is_for(other) for other in (2 * rows, rows[:-1], rows.flip(0), rows[:, :1]))


def test_scaled_questions_go_to_the_inner_oracle_as_they_are() -> None:
    oracle, V, seeds = Pooled(patches_with_repeats(), Told), normal(16, 2), normal(1, 2)
    found = oracle._steepest(V, 0.25, seeds)
    assert found.bracket == Bracket(1.0, 2.0)
    asked, above, given = oracle.inner.asked[0]
    assert asked is V
    assert (above, given is seeds) == (0.25, True)


def test_an_oracle_is_pooled_only_for_a_readout() -> None:
    patches = patches_with_repeats()
    rows = patches.rows()
    plain, pooled = oracle_for(rows, None, Told), oracle_for(rows, patches, Told)
    assert isinstance(plain, Told)
    assert plain.is_for(rows)
    assert isinstance(pooled, Pooled)
    assert pooled.readout is patches
    assert isinstance(pooled.inner, Told)
    assert math.isfinite(pooled.steepest(normal(4, 1)).bracket.upper)


def exact_pooled(patches: ImagePatches, V: Tensor, u: Tensor) -> Fraction:
    """|V^T L[(X u)_+]|^2 of one readout in fractions."""
    weights = [[Fraction(x) for x in row] for row in patches.pooling.listed.tolist()]
    hidden = [
        max(sum(Fraction(a) * Fraction(b) for a, b in zip(x, u.tolist(), strict=True)), 0) for x in rows_of(patches)
    ]
    size, total = patches.per_sample[0], Fraction(0)
    for a in range(len(weights)):
        for k in range(V.shape[1]):
            seen = (sum(w * h for w, h in zip(weights[a], hidden[i * size :], strict=False)) for i in range(len(V)))
            total += sum(Fraction(v) * s for v, s in zip(V[:, k].tolist(), seen, strict=True)) ** 2
    return total


def rows_of(patches: ImagePatches) -> list[list[float]]:
    return patches.rows().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_no_neuron_is_above_the_bound_in_fractions(dtype: torch.dtype, seed: int) -> None:
    """Duals of equal images that cancel but for their last digits; patches of single precision too."""
    images = normal(3, 1, 5, seed=seed).to(dtype)[[0, 1, 2, 0, 1, 2]]
    patches = ImagePatches(images, Convolution.of(1, 2, padding=1, pooling=(3,)))
    V = normal(3, 2, seed=seed + 5).repeat(2, 1)
    V[3:] *= -(1 + 1e-12 * normal(3, 2, seed=seed))
    found = Pooled(patches, Faces).steepest(V)
    for u in torch.cat([found.neurons[:3], normal(3, 2, seed=seed)]).round(decimals=8):
        assert exact_pooled(patches, V, u) <= Fraction(found.bracket.upper) ** 2 * sum(
            Fraction(x) ** 2 for x in u.tolist()
        )
