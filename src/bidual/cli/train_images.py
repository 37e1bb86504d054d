"""`bidual train-images`: grow a deep network on a data set or a folder of images."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bidual.cli import training as t


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The estimator's parameters that are options; three of them come as texts."""

    stages: Annotated[int, typer.Option(help="How many stages.")] = 3
    n_gates: Annotated[int, typer.Option(help="Random gates per stage.")] = 64
    factors: Annotated[int, typer.Option(help="Filters per gate.")] = 1
    units: Annotated[int, typer.Option(help="1 for two-layer stages; more for three-layer ones.")] = 1
    downsample: Annotated[str, typer.Option(help="Stages that halve the map first, like 1,2; none for none.")] = "2"
    epochs: Annotated[int, typer.Option(help="Epochs per stage.")] = 15
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 128
    learning_rate: Annotated[str, typer.Option(help="auto, a number, or one per stage, like 0.1,0.05,0.05.")] = "auto"
    weight_decay: Annotated[float, typer.Option(help="Beside the mean loss.")] = 5e-4
    crop: Annotated[str, typer.Option(help="Random shifts by so many pixels; auto is an eighth of the side.")] = "auto"
    flip: Annotated[bool, typer.Option(help="Random mirror images.")] = True
    checkpoint: Annotated[Path | None, t.option("A folder for a checkpoint after every epoch.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the checkpoint in that folder.")] = False
    certificate_samples: Annotated[int, typer.Option(help="Images that every stage is certified on.")] = 500
    seed: t.Seed = 0
    device: Annotated[str, typer.Option(help="cpu, or a GPU like cuda.")] = "cpu"

    def parameters(self) -> dict[str, Any]:
        """Of the estimator."""
        given = {name: value for name, value in asdict(self).items() if name != "seed"}
        return given | {
            "downsample": _stages(self.downsample),
            "learning_rate": _rates(self.learning_rate),
            "crop": "auto" if self.crop == "auto" else _whole("--crop", self.crop),
            "drop_every": max(1, round(0.3 * self.epochs)),
            "random_state": self.seed,
        }


@t.with_options(Settings)
def train_images(
    data: Annotated[
        str, t.argument("DATA", "fashion-mnist, mnist, cifar-10, or a folder of images with a subfolder per class.")
    ],
    out: Annotated[Path, t.option("The model file to write (safetensors).")],
    settings: Settings,
    confusion: Annotated[Path | None, t.option("A picture of the confusion matrix to write.")] = None,
    data_dir: Annotated[Path | None, t.option("Where data sets lie; else BIDUAL_DATA, else the cache.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch a data set that is not there.")] = False,
    size: Annotated[str | None, t.option("Resize the images of a folder, like 32x32.")] = None,
    images: Annotated[int | None, t.option("Train on so many random images only.")] = None,
    distributed: t.Distributed = False,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Grow a deep network stage by stage on images, and save it.

    Ctrl-C keeps the best network so far; with --checkpoint a killed training goes on with --resume.
    Over several processes: torchrun --nproc-per-node 2 -m bidual train-images ... --distributed (docs/scale.md).
    """
    from bidual.cli.image_training import Source, Targets, train
    from bidual.estimators import LayerwiseCNNClassifier
    from bidual.runtime.ranks import ALONE

    def estimator() -> LayerwiseCNNClassifier:
        return LayerwiseCNNClassifier(**settings.parameters(), verbose=int(not quiet))

    source = Source(data, data_dir, download, size, images, settings.seed)
    targets = Targets(out, confusion, json, quiet)
    with t.command_ranks(settings.device) if distributed else nullcontext(ALONE) as ranks:
        train(estimator, source, targets, ranks)


def _stages(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(_whole("--downsample", part) for part in text.split(","))


def _rates(text: str) -> str | float | tuple[float, ...]:
    if text == "auto":
        return text
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--learning-rate must be auto, a number, or one per stage, got {text!r}.") from None
    return rates[0] if len(rates) == 1 else rates


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{name} needs whole numbers, got {text!r}.")
    return int(text)
