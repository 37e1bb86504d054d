"""The file readers, each as one function of the bytes of a file; what they return is used as a user would."""

import contextlib
import io
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bidual import LayerwiseCNNClassifier
from bidual.distributed.fitting import Checkpoint as DistributedCheckpoint
from bidual.estimators.saving import read
from bidual.io.datasets.image_folder import load_folder
from bidual.io.datasets.images import read_cifar10, read_idx
from bidual.io.foreign import from_file
from bidual.io.tables import TableEncoder, guess_task, read_table, split_target, target_values
from bidual.operators.tiled import MappedRows
from bidual.papers.reproduction import read as read_result
from bidual.reporting.written import written_report
from bidual.training.layerwise.checkpoint import Checkpoint
from fuzz import mutations, seeds
from fuzz.judging import check_command, judged


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        use: reads a file of the name given, and does with it what users do.
        name: of the file.
        seeds: valid files.
        mutate: what makes others of them.
    """

    use: Callable[[Path], object]
    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    mutate: mutations.Mutation = mutations.bytes_changed

    def run(self, data: bytes) -> None:
        """Hold the reader against its promises on one file."""
        with _folder() as folder, judged(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / "weights.bin").write_bytes(bytes(24))  # beside an ONNX file
            (folder / self.name).write_bytes(data)
            self.use(folder / self.name)

    def mutated(self, number: int) -> bytes:
        """A file that is nearly right; the same for the same number."""
        rng = random.Random(number)
        data = rng.choice(self.seeds())
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = self.mutate(data, rng)
        return data


@contextmanager
def _folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _model(path: Path) -> None:
    saved = read(path)
    estimator = saved.estimator
    estimator.predict(np.zeros((1, estimator.n_features_in_)))
    if isinstance(estimator, LayerwiseCNNClassifier):
        return
    str(estimator.certificate_), estimator.certificate_.relative_gap
    if hasattr(estimator, "predict_proba"):
        estimator.predict_proba(np.zeros((1, estimator.n_features_in_)))


def _report_of_model(path: Path) -> None:
    check_command(path.parent, "report", path.name, "--out", "o.html", outputs=("o.html",))


def _table(path: Path) -> None:
    frame = read_table(path)
    features, column = split_target(frame, str(frame.columns[-1]))
    for task in {guess_task(column), "classification"}:
        target_values(column, task)
    encoder = TableEncoder().fit(features)
    assert np.isfinite(encoder.transform(features).to_numpy()).all()
    encoder.summary, encoder.to_json()


def _array(path: Path) -> None:
    MappedRows.open(path).tile(slice(0, 4), torch.float64)


def _picture(path: Path) -> None:
    root = path.parent / "images"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
    (root / "cat" / "0.png").write_bytes(seeds.pictures()[0])
    shutil.copy(path, root / "dog" / "0.png")
    load_folder(root, test_fraction=0)
    load_folder(root, test_fraction=0, size=(3, 2))


def _resume(path: Path) -> None:
    Checkpoint.read(path.parent)
    LayerwiseCNNClassifier(**seeds.LAYERWISE, checkpoint=path.parent, resume=True).fit(seeds.IMAGES, seeds.y)


def _race(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        check_command(path.parent, "bench", "--peers", path.name)
        check_command(path.parent, "bench", "--peers", path.name, "--json")


def _result(path: Path) -> None:
    folder = path.parent / "reproduction" / "smoke" / "cp_figure_1"
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "result.json")
    check_command(path.parent, "reproduce")
    read_result(folder)


TARGETS: dict[str, Target] = {
    "model": Target(_model, "m.safetensors", seeds.models, mutations.safetensors_changed),
    "model_report": Target(_report_of_model, "m.safetensors", seeds.models, mutations.safetensors_changed),
    "safetensors": Target(from_file, "n.safetensors", seeds.foreign_safetensors, mutations.safetensors_changed),
    "onnx": Target(from_file, "n.onnx", seeds.onnx_files),
    "pt2": Target(from_file, "n.pt2", seeds.pt2, mutations.zip_changed),
    "any_network": Target(from_file, "network", lambda: (*seeds.pt2(), *seeds.foreign_safetensors())),
    "csv": Target(_table, "t.csv", seeds.tables),
    "parquet": Target(_table, "t.parquet", seeds.parquets),
    "npy": Target(_array, "t.npy", seeds.arrays),
    "idx": Target(read_idx, "images", seeds.idx_files),
    "cifar": Target(read_cifar10, "batch.bin", seeds.cifar_files),
    "picture": Target(_picture, "picture", seeds.pictures),
    "checkpoint": Target(_resume, "checkpoint.safetensors", seeds.layerwise_checkpoint, mutations.safetensors_changed),
    "distributed_checkpoint": Target(
        lambda path: DistributedCheckpoint.read(path, seeds.ABOUT),
        "c.safetensors",
        seeds.distributed_checkpoint,
        mutations.safetensors_changed,
    ),
    "report": Target(lambda path: written_report(path, None), "r.json", seeds.reports, mutations.json_changed),
    "race": Target(_race, "race.json", seeds.races, mutations.json_changed),
    "reproduction": Target(_result, "r.json", seeds.reproductions, mutations.json_changed),
}
