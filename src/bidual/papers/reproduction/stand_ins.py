"""Small generated data in the shapes of the official sets: they show that an experiment runs, not what it finds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bidual.io.datasets import IMAGE_SOURCES, ImageData
from bidual.runtime.files import write_atomically

_TRAIN, _TEST = 80, 40  # images of each set
_ROWS, _COLUMNS = 24, 4
_SIZES = {"mnist": (1, 28), "fashion-mnist": (1, 28), "cifar-10": (3, 32)}


def stand_in_images(name: str) -> ImageData:
    """Blurred spots whose place tells the class, in the size of the official images, classes in turn."""
    rng, (channels, side) = np.random.default_rng(0), _SIZES[name]
    source = IMAGE_SOURCES[name]
    labels = np.arange(_TRAIN + _TEST) % len(source.classes)
    centres = np.stack([0.2 + 0.15 * (labels % 5), 0.3 + 0.4 * (labels // 5)], 1) + 0.03 * rng.normal(size=(120, 2))
    ticks = np.linspace(0, 1, side)
    across, down = (np.exp(-(((ticks - centre[:, None]) / 0.15) ** 2)) for centre in centres.T)
    spots = np.einsum("ni,nj->nij", down, across)[:, None] * rng.uniform(0.6, 1, (len(labels), channels, 1, 1))
    images = (255 * (0.8 * spots + 0.2 * rng.random((len(labels), channels, side, side)))).astype(np.uint8)
    parts = (images[:_TRAIN], labels[:_TRAIN], images[_TRAIN:], labels[_TRAIN:])
    return ImageData(name, *parts, source.classes, "generated, not the official images")


def write_stand_in_tables(folder: Path, names: Sequence[str]) -> Path:
    """Two noisy classes for every name, as CSV files with the columns f0, f1, ..., label."""
    folder = folder / "stand-ins"
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        labels = np.arange(_ROWS) % 2
        X = rng.normal(size=(_ROWS, _COLUMNS)) + labels[:, None]
        import pandas as pd

        table = pd.DataFrame(X, columns=[f"f{k}" for k in range(_COLUMNS)]).assign(label=labels)
        write_atomically(folder / f"{name}.csv", table.to_csv(index=False).encode())
    return folder
