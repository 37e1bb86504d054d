import numpy as np
import pytest

from bidual.io.datasets import make_spiral


def test_spiral_arms() -> None:
    X, y = make_spiral(12, n_classes=3, noise=0.0)
    assert X.shape == (12, 2)
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    np.testing.assert_allclose(np.linalg.norm(X[4:8], axis=1), np.linspace(0.05, 1, 4))
    np.testing.assert_allclose(X[11], [np.sin(12), np.cos(12)])


def test_spiral_depends_on_the_seed_only() -> None:
    np.testing.assert_array_equal(make_spiral(30, seed=1)[0], make_spiral(30, seed=1)[0])
    assert not np.array_equal(make_spiral(30, seed=1)[0], make_spiral(30, seed=2)[0])


@pytest.mark.parametrize(("n", "classes"), [(10, 3), (0, 3), (3, 0)])
def test_spiral_sizes(n: int, classes: int) -> None:
    with pytest.raises(ValueError, match="multiple of n_classes"):
        make_spiral(n, n_classes=classes)
