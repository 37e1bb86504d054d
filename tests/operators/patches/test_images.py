"""Patches of images and their pooling against explicit loops and torch's own convolutions (BM eq. 22)."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from bidual.operators import PooledOperator, pooled
from bidual.operators.patches import Convolution, ImagePatches, Pooling
from bidual.operators.patches import base as patches_base
from bidual.testing import check_operator
from helpers.draws import normal
from oracles.explicit_readouts import window_averages
from oracles.patch_cases import CASES, POOLINGS

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)
linear_or_gated = pytest.mark.parametrize("gated", [False, True], ids=["linear", "gated"])
with_or_without_bias = pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])


@every_case
@every_pooling
@with_or_without_bias
def test_rows_are_the_patches_entry_by_entry(case, pooling, bias):
    patches, explicit = case.patches(pooling, bias), case.explicit(pooling, bias)
    assert patches.map == case.map
    assert torch.equal(patches.rows(), explicit.rows)
    assert (patches.n_rows, patches.width) == tuple(explicit.rows.shape)
    assert patches.n_predictions == len(patches) == 3


@every_case
@every_pooling
def test_every_patch_is_listed_once(case, pooling):
    """Windows may be listed one after another, and are in the order of the image within each."""
    patches = case.patches(pooling)
    order, K = patches.pooling.order, patches.per_sample[0]
    assert sorted(order.tolist()) == list(range(K))
    if pooling == "grid":
        together = patches.pooling.matrix[:, order] > 0
        assert torch.equal(together, torch.eye(patches.readouts).repeat_interleave(K // patches.readouts, 1) > 0)
    else:
        assert order.tolist() == list(range(K))


@every_case
def test_rows_times_a_filter_is_torchs_convolution(case):
    """X_i u for the flattened filter u, positions in the order of torch's output."""
    filters = normal(4, case.size[0], *case.kernel, seed=1)
    convolve = functional.conv1d if len(case.kernel) == 1 else functional.conv2d
    expected = convolve(case.images, filters, None, case.stride, case.padding, case.dilation)
    found = (case.patches("average").rows() @ filters.flatten(1).T).reshape(3, -1, 4).mT
    torch.testing.assert_close(found, expected.flatten(2), rtol=1e-12, atol=1e-12)


@every_case
@every_pooling
def test_the_pooling_matrix(case, pooling):
    found, expected = case.patches(pooling).pooling, case.matrix(pooling)
    torch.testing.assert_close(found.matrix, expected, rtol=1e-15, atol=0)
    assert case.patches(pooling).readouts == found.size == len(expected)


@every_case
@every_pooling
def test_pool_is_the_matrix_times_what_filters_see(case, pooling):
    """L[H]_i = P_a H_i for every column of H."""
    patches, explicit = case.patches(pooling), case.explicit(pooling)
    H = normal(patches.n_rows, 4, seed=2)
    expected = torch.einsum("iar,rq->iqa", explicit.readout, H)
    torch.testing.assert_close(patches.pool(H), expected, rtol=1e-12, atol=1e-12)


@every_case
@every_pooling
def test_spread_is_the_adjoint_of_pool(case, pooling):
    """<V^T L[h], M> = <h, (L* V) M> for all h, M: entry by entry, with columns ordered by readout and output."""
    patches, explicit = case.patches(pooling), case.explicit(pooling)
    V, H = normal(3, 2, seed=3), normal(patches.n_rows, 4, seed=4)
    spread = patches.spread(V)
    torch.testing.assert_close(spread, torch.einsum("iar,ic->rac", explicit.readout, V).flatten(1), rtol=1e-12, atol=0)
    through_pool = torch.einsum("iqa,ic->qac", patches.pool(H), V).flatten(1)
    torch.testing.assert_close(through_pool, H.T @ spread, rtol=1e-12, atol=1e-12)


@every_case
@every_pooling
@with_or_without_bias
def test_compress_is_the_papers_design(case, pooling, bias):
    """(P_a D_p X_i)^T (h, a) for every sample and pattern, the transpose of B in BM (125)-(127); any D will do."""
    patches, explicit = case.patches(pooling, bias), case.explicit(pooling, bias)
    for D in ((normal(patches.n_rows, 3, seed=6) >= 0).double(), normal(patches.n_rows, 2, seed=7)):
        expected = torch.einsum("iar,rp,rh->ipha", explicit.readout, D, explicit.rows)
        torch.testing.assert_close(patches.compress(D), expected, rtol=1e-12, atol=1e-12)


@every_case
def test_windows_give_what_their_matrix_gives(case):
    """The shortcut for windows of equal size against the general path with the same matrix."""
    short, long = case.patches("grid", True), ImagePatches(case.images, case.convolution(case.matrix("grid")), True)
    assert short.pooling.window == torch.Size(case.map).numel() // torch.Size(case.grid).numel()
    assert long.pooling.window == 0
    H, V, listed = normal(short.n_rows, 3, seed=8), normal(3, 2, seed=9), case.listed("grid")
    torch.testing.assert_close(short.rows(), long.rows()[listed], rtol=0, atol=0)
    torch.testing.assert_close(short.pool(H[listed]), long.pool(H), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(short.compress(H[listed]), long.compress(H), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(short.spread(V), long.spread(V)[listed], rtol=1e-14, atol=0)
    torch.testing.assert_close(short.reach(), long.reach(), rtol=1e-13, atol=0)


@every_case
@every_pooling
def test_reach_bounds_what_can_be_read(case, pooling):
    """sum_r |L_r| |x_r|, which |L[D X]| and |L[(X u)_+]| cannot exceed for |u| <= 1."""
    patches, explicit = case.patches(pooling), case.explicit(pooling)
    lengths = torch.linalg.vector_norm(explicit.rows, dim=1)
    torch.testing.assert_close(patches.reach(), explicit.readout.abs() @ lengths, rtol=1e-12, atol=0)
    D = (normal(patches.n_rows, 50, seed=1) >= 0).double()
    seen = torch.linalg.vector_norm(patches.compress(D), dim=2)
    assert bool((seen <= patches.reach()[:, None] * (1 + 1e-12)).all())
    u = torch.nn.functional.normalize(normal(50, patches.width, seed=2))
    assert bool((patches.pool((patches.rows() @ u.T).clamp(min=0)).abs() <= patches.reach()[:, None] + 1e-12).all())


@every_case
@every_pooling
@linear_or_gated
def test_lifted_operators_keep_their_contract(case, pooling, gated):
    """Adjoint, kernel, selection, magnitude and single precision."""
    patches = case.patches(pooling, bias=gated)
    gates = normal(patches.width, 3, seed=3) if gated else None
    check_operator(PooledOperator(patches, 2, gates=gates), torch.Generator().manual_seed(0))


def test_a_single_average_is_the_mean_and_not_the_sum():
    """The papers' "average" is a sum (notes on BM eq. 6): ours is 1 / K of it."""
    patches = CASES["2-D"].patches("average")
    H = normal(patches.n_rows, 2)
    torch.testing.assert_close(patches.pool(H)[:, :, 0], H.reshape(3, -1, 2).mean(1))


def test_grids_are_ordered_by_rows():
    """Window j of a (1, 2) grid on a 2 x 4 map has columns 2 j and 2 j + 1 of both rows."""
    pooling = Pooling.to_grid((2, 4), (1, 2), torch.zeros(0, dtype=torch.float64))
    assert pooling.order.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert torch.equal(pooling.matrix, window_averages((2, 4), (1, 2)))
    assert torch.equal(pooling.listed, pooling.matrix[:, pooling.order])


def test_zero_patches_tell_no_patterns_apart():
    """Padding by more than the filter makes zero rows, which are dropped; equal patches count once."""
    case = CASES["1-D, padding beyond the filter"]
    patches = case.patches("average")
    assert int((~patches.rows().any(1)).sum()) == 3 * 4
    assert len(patches.distinguishing_rows()) == 3 * 4
    assert bool(patches.distinguishing_rows().any(1).all())
    twice = ImagePatches(case.images[[0, 0, 1, 1]], case.convolution())
    assert len(twice.distinguishing_rows()) == 2 * 4


def test_padding_does_not_touch_the_bias():
    """A patch of padding still sees the constant 1, so it is not zero and does tell patterns apart."""
    patches = CASES["1-D, padding beyond the filter"].patches("average", bias=True)
    assert bool((patches.rows()[:, -1] == 1).all())
    assert len(patches.distinguishing_rows()) == 3 * 4 + 1
    assert [0.0, 0.0, 1.0] in patches.distinguishing_rows().tolist()


def test_many_images_tell_patterns_apart_by_some(monkeypatch):
    monkeypatch.setattr(patches_base, "_MOST_ROWS", 13)
    patches = CASES["1-D"].patches("average")  # six patches in each of three images: every second image is enough
    expected = torch.unique(torch.cat([patches.rows()[:6], patches.rows()[12:]]), dim=0)
    assert torch.equal(patches.distinguishing_rows(), expected)


@every_pooling
def test_some_samples_are_those_samples(pooling):
    patches = CASES["2-D, all at once"].patches(pooling, bias=True)
    part, K = patches.samples(slice(1, 3)), patches.per_sample[0]
    assert len(part) == 2
    assert torch.equal(part.rows(), patches.rows()[K:])
    H = normal(patches.n_rows, 2)
    torch.testing.assert_close(part.pool(H[K:]), patches.pool(H)[1:])


@every_pooling
def test_single_precision_is_the_same_geometry(pooling):
    patches = CASES["2-D, all at once"].patches(pooling, bias=True)
    single = patches.to(torch.float32)
    H = normal(patches.n_rows, 2)
    assert single.rows().dtype is single.pool(H.float()).dtype is torch.float32
    torch.testing.assert_close(single.pool(H.float()).double(), patches.pool(H), rtol=1e-5, atol=1e-5)


def test_same_patches():
    """The same images, geometry, pooling and bias; a grid and its matrix are one pooling."""
    case = CASES["1-D"]
    patches = case.patches("grid")
    assert patches.is_same(ImagePatches(case.images.clone(), case.convolution(case.grid)))
    others = [
        case.patches("average"),
        case.patches("matrix"),
        case.patches("grid", bias=True),
        ImagePatches(case.images + 1e-12, case.convolution(case.grid)),
        ImagePatches(case.images, Convolution.of(1, 3, stride=2, padding=2, pooling=(2,))),
        CASES["2-D"].patches("grid"),
    ]
    assert not any(patches.is_same(other) or other.is_same(patches) for other in others)


def test_one_number_stands_for_every_dimension():
    found = Convolution.of(2, 3, stride=2, padding=1, dilation=(1, 2), pooling=[2, 1])
    assert (found.kernel_size, found.stride, found.padding, found.dilation) == ((3, 3), (2, 2), (1, 1), (1, 2))
    assert found.pooling == (2, 1)
    assert Convolution.of(1, 3).grid == (1,)


REFUSED_POOLINGS = {
    "does not divide": ((4,), r"pooling grid \(4,\) does not divide the \(6,\) map of patches"),
    "zero": ((0,), r"pooling needs 1 whole numbers of at least 1, got \(0,\)"),
    "too many numbers": ((2, 1), r"pooling needs 1 whole numbers of at least 1, got \(2, 1\)"),
    "wrong width": (normal(2, 5), r"one column for each of the 6 patches of an image, got shape \(2, 5\)"),
    "a vector": (normal(6), r"one column for each of the 6 patches of an image, got shape \(6,\)"),
    "no rows": (normal(0, 6), r"one column for each of the 6 patches of an image, got shape \(0, 6\)"),
    "NaN": (torch.full((1, 6), torch.nan, dtype=torch.float64), "must be finite, got NaN or infinity"),
    "infinity": (torch.full((1, 6), torch.inf, dtype=torch.float64), "must be finite, got NaN or infinity"),
}


@pytest.mark.parametrize(("pooling", "message"), REFUSED_POOLINGS.values(), ids=REFUSED_POOLINGS)
def test_refused_poolings(pooling, message):
    with pytest.raises(ValueError, match=message):
        ImagePatches(normal(2, 1, 8), Convolution.of(1, 3, pooling=pooling)).pooling  # noqa: B018


def test_a_grid_that_does_not_divide_says_what_would_do():
    with pytest.raises(ValueError, match="use numbers that do, or give a matrix of 12 columns"):
        CASES["2-D"].convolution((2, 4)).pooling_for((1, 4, 5), normal(0))


REFUSED_GEOMETRIES = {
    "three dimensions": ((2, 2, 2), (1, 1, 1), (0, 0, 0), (1, 1, 1), "one or two dimensions"),
    "no dimension": ((), (), (), (), "one or two dimensions"),
    "empty filter": ((0,), (1,), (0,), (1,), r"kernel_size needs 1 whole numbers of at least 1, got \(0,\)"),
    "no stride": ((2, 2), (1, 0), (0, 0), (1, 1), r"stride needs 2 whole numbers of at least 1, got \(1, 0\)"),
    "negative padding": ((2,), (1,), (-1,), (1,), r"padding needs 1 whole numbers of at least 0, got \(-1,\)"),
    "no dilation": ((2,), (1,), (0,), (0,), r"dilation needs 1 whole numbers of at least 1, got \(0,\)"),
    "too few strides": ((2, 2), (1,), (0, 0), (1, 1), r"stride needs 2 whole numbers of at least 1, got \(1,\)"),
    "a broken filter": ((2.5,), (1,), (0,), (1,), r"kernel_size needs 1 whole numbers of at least 1, got \(2.5,\)"),
}


@pytest.mark.parametrize("given", REFUSED_GEOMETRIES.values(), ids=REFUSED_GEOMETRIES)
def test_refused_geometries(given):
    *geometry, message = given
    with pytest.raises(ValueError, match=message):
        Convolution(*geometry)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 2), r"an image of shape \(1, 2\) with padding \(0,\) is smaller than a filter that spans 3"),
        ((3,), r"a 1-dimensional convolution needs images of shape \(channels, length\), got \(3,\)"),
        ((1, 5, 5), r"a 1-dimensional convolution needs images of shape \(channels, length\), got \(1, 5, 5\)"),
    ],
)
def test_refused_images(shape, message):
    with pytest.raises(ValueError, match=message):
        ImagePatches(normal(2, *shape), Convolution.of(1, 3))


def test_dilation_widens_what_an_image_must_hold():
    with pytest.raises(ValueError, match=r"smaller than a filter that spans 5; use a smaller kernel_size, or padding"):
        ImagePatches(normal(2, 1, 4), Convolution.of(1, 3, dilation=2))
    assert ImagePatches(normal(2, 1, 5), Convolution.of(1, 3, dilation=2)).map == (1,)
    with pytest.raises(ValueError, match=r"needs images of shape \(channels, height, width\), got \(1, 4\)"):
        ImagePatches(normal(2, 1, 4), Convolution.of(2, 3))


def test_one_number_serves_all_dimensions() -> None:
    """Numpy's whole numbers are whole numbers; others are refused."""
    one = Convolution.of(2, np.int64(3), pooling=2)
    assert one.kernel_size == (3, 3)
    assert one.grid == (2, 2)
    with pytest.raises(ValueError, match="kernel_size needs 1 whole numbers of at least 1"):
        Convolution.of(1, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pooling needs 1 whole numbers of at least 1"):
        Convolution.of(1, 2, pooling=(2.0,))  # type: ignore[arg-type]


def test_a_design_that_is_not_kept_is_made_again() -> None:
    """The two ways of a product give the same, in both precisions, with several chunks of samples."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(7, 2, 4, 4, generator=generator, dtype=torch.float64)
    patches = ImagePatches(X, Convolution.of(2, 2, padding=1, pooling=(5, 1)), bias=True)
    gates = torch.randn(patches.width, 6, generator=generator, dtype=torch.float64)
    kept, made = (PooledOperator(patches, 3, gates=gates) for _ in range(2))
    made.__dict__["_kept"] = None
    Z, V = torch.randn(kept.block_shape, generator=generator).double(), torch.randn(7, 3, generator=generator).double()
    size, pooled._AT_ONCE = pooled._AT_ONCE, 2 * kept.design_width
    try:
        assert sum(1 for _ in made._parts()) > 1
        torch.testing.assert_close(made.forward(Z), kept.forward(Z))
        torch.testing.assert_close(made.adjoint(V), kept.adjoint(V))
        torch.testing.assert_close(made.kernel(), kept.kernel())
        single = made.to(torch.float32)
        torch.testing.assert_close(single.forward(Z.float()), kept.forward(Z).float(), rtol=1e-4, atol=1e-4)
    finally:
        pooled._AT_ONCE = size
