from typing import Any

import numpy as np
import pytest

from bidual.estimators.mlp import ConvexMLPClassifier
from bidual.io.foreign import class_codes, number_targets
from bidual.losses import LOSSES, Loss

TWO, THREE = np.array(["no", "yes", "yes"]), np.array(["a", "b", "c", "a"])


def class_targets(labels: Any, n_outputs: int, loss: Loss, classes: list[str] | None = None) -> np.ndarray:
    return loss.encode(class_codes(labels, n_outputs, classes)[1], n_outputs)


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic", "softmax"])
def test_labels_are_encoded_as_the_classifiers_do(loss: str, labels: np.ndarray) -> None:
    expected = ConvexMLPClassifier(loss=loss)._encode_targets(labels)
    np.testing.assert_array_equal(class_targets(labels, expected.shape[1], LOSSES[loss]()), expected)


def test_whole_numbers_are_numbers_of_outputs() -> None:
    """A class that does not occur keeps its output."""
    np.testing.assert_array_equal(class_targets([3, 0, 1], 4, LOSSES["squared"]()), np.eye(4)[[3, 0, 1]])
    np.testing.assert_array_equal(class_targets([7, 3, 5], 3, LOSSES["squared"]()), np.eye(3)[[2, 0, 1]])
    np.testing.assert_array_equal(class_targets([0, 1, 0], 1, LOSSES["squared"]()), [[-1], [1], [-1]])


def test_the_order_of_known_classes() -> None:
    Y = class_targets(["b", "a"], 3, LOSSES["softmax"](), classes=["c", "b", "a"])
    np.testing.assert_array_equal(Y, np.eye(3)[[1, 2]])
    with pytest.raises(ValueError, match="'d' is none of the classes"):
        class_targets(["b", "d"], 3, LOSSES["softmax"](), classes=["c", "b", "a"])


@pytest.mark.parametrize(
    ("labels", "n_outputs", "loss", "message"),
    [
        (THREE, 1, "squared", "3 classes, but a network with 1 outputs is for 2"),
        (THREE, 4, "squared", "3 classes, but a network with 4 outputs is for 4"),
        (TWO, 1, "softmax", "softmax needs one output per class"),
        (TWO[:, None], 1, "squared", r"one per sample, got shape \(3, 1\)"),
    ],
)
def test_labels_that_do_not_fit(labels: Any, n_outputs: int, loss: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_targets(labels, n_outputs, LOSSES[loss]())


def test_numbers() -> None:
    assert number_targets([1, 2, 3], 1).shape == (3, 1)
    assert number_targets(np.ones((3, 2)), 2).dtype == np.float64
    with pytest.raises(ValueError, match="has 2 outputs, but there are 1 targets per sample"):
        number_targets([1, 2, 3], 2)
    with pytest.raises(ValueError, match=r"one row per sample, got 3\.0; give an array"):
        number_targets(3.0, 1)
