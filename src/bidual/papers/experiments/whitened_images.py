"""Labelled images, normalised and whitened as in CP A.1.4, and as its Theorem 2 needs them."""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

from bidual.estimators.whitening import ZCAWhitening
from bidual.io.datasets import ImageData

Images = UInt8[ndarray, "N channels height width"]
Labels = UInt8[ndarray, " N"]


class Setting(Enum):
    """What is whitened."""

    CORRECTED = "de-meaned, with the constant column 1 / sqrt(n): X X^T = I"
    UNCENTRED = "not de-meaned: X X^T = I"
    LITERAL = "de-meaned, as CP says: X X^T = I - 1 1^T / n"


@dataclass(frozen=True, eq=False)
class Whitened:
    """Training and test samples after one whitening map, which is learnt from the former."""

    setting: Setting
    X: Float[Tensor, "n d"]
    labels: Float[Tensor, " n"]
    X_test: Float[Tensor, "N d"]
    labels_test: Float[Tensor, " N"]

    @property
    def one_hot(self) -> Float[Tensor, "n c"]:
        """A column for each class, in the order of the labels."""
        return (self.labels[:, None] == self.labels.unique()).to(self.X)

    def accuracy(self, scores: Float[Tensor, "N c"]) -> float:
        """The share of test samples whose largest score is that of their class."""
        guess = self.labels.unique()[scores.argmax(1)]
        return float((guess == self.labels_test).double().mean())

    @property
    def defect(self) -> float:
        """|X X^T - I|_F, which is 1 for de-meaned data."""
        return float(torch.linalg.matrix_norm(self.X @ self.X.T - torch.eye(len(self.X), dtype=self.X.dtype)))


@dataclass(frozen=True, eq=False)
class Split:
    """Flat images, every channel normalised by the mean and deviation of all training images, and their labels."""

    train: Float[ndarray, "n d"]
    labels: Labels
    test: Float[ndarray, "N d"]
    labels_test: Labels

    def whitened(self, setting: Setting) -> Whitened:
        """ZCA; the literal setting is the corrected one without its last column."""
        if setting is Setting.LITERAL:
            return without_constant(self.whitened(Setting.CORRECTED))
        zca = ZCAWhitening(center=setting is Setting.CORRECTED).fit(self.train)
        X, X_test = (torch.from_numpy(zca.transform(part)) for part in (self.train, self.test))
        y, y_test = (torch.from_numpy(part.astype(np.float64)) for part in (self.labels, self.labels_test))
        return Whitened(setting, X, y, X_test, y_test)


def without_constant(data: Whitened) -> Whitened:
    """What de-meaning and whitening leave, from the corrected data."""
    if data.setting is not Setting.CORRECTED:
        raise ValueError(f"only corrected data have a constant column to drop, got {data.setting.name}.")
    return replace(data, setting=Setting.LITERAL, X=data.X[:, :-1], X_test=data.X_test[:, :-1])


def split(
    images: Images,
    labels: Labels,
    test_images: Images,
    test_labels: Labels,
    per_class: int = 300,
    seed: int = 0,
) -> Split:
    """As many random training images of each class, and all test images."""
    if len(images) != len(labels) or len(test_images) != len(test_labels):
        raise ValueError(
            f"images and labels must be as many, got {len(images)} and {len(labels)} to train, {len(test_images)} and "
            f"{len(test_labels)} to test."
        )
    chosen = balanced(labels, per_class, seed)
    pixels = images.astype(np.float64)
    mean, deviation = pixels.mean((0, 2, 3), keepdims=True), pixels.std((0, 2, 3), keepdims=True)
    if not (deviation > 0).all():
        raise ValueError("every channel of the images must vary, got a constant one: drop it.")
    train, test = ((part - mean) / deviation for part in (pixels[chosen], test_images))
    return Split(train.reshape(len(train), -1), labels[chosen], test.reshape(len(test), -1), test_labels)


def split_of(data: ImageData, per_class: int = 300, seed: int = 0) -> Split:
    """Of a data set."""
    labels, test_labels = (part.astype(np.uint8) for part in (data.train_labels, data.test_labels))
    return split(data.train_images, labels, data.test_images, test_labels, per_class, seed)


def balanced(labels: Labels, per_class: int, seed: int) -> ndarray:
    """Indices of ``per_class`` random samples of each class, class by class."""
    rng, chosen = np.random.default_rng(seed), []
    for label in np.unique(labels):
        same = np.flatnonzero(labels == label)
        if len(same) < per_class:
            raise ValueError(f"class {label} has {len(same)} images, fewer than {per_class}; ask for fewer.")
        chosen.append(rng.choice(same, per_class, replace=False))
    return np.concatenate(chosen)
