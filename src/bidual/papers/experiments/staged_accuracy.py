"""Accuracy per stage of layerwise networks: what R2 (BM Fig. 1, 5) and R14 (PR Fig. 6) share."""

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from bidual.architectures.modules.layerwise import LayerwiseNetwork
from bidual.io.datasets import ImageData
from bidual.papers.experiments.end_to_end import train_end_to_end
from bidual.papers.experiments.noise import clearly_above
from bidual.papers.reproduction import Claim, Context, Finding
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically
from bidual.training.layerwise import EpochRecord, LayerwiseTrainer, Settings
from bidual.training.layerwise.certificates import certify_stage
from bidual.training.layerwise.trainer import OnEpoch

_AT_ONCE = 500


@dataclass(frozen=True)
class Plan:
    """One network of an experiment.

    Attributes:
        settings: of its training.
        images: the first so many training images, all if None.
        end_to_end: whether a plain ReLU CNN of the same depth and width is trained for the same time beside it.
        certified: images that every stage is certified on, 0 for none.
    """

    settings: Settings
    images: int | None = None
    end_to_end: bool = False
    certified: int = 0

    @property
    def name(self) -> str:
        """Like P = 16, m = 4."""
        chosen = self.settings
        units = f", m_1 = {chosen.units}" if chosen.units > 1 else ""
        return f"P = {chosen.gates}, m = {chosen.factors}{units}"


@dataclass(frozen=True)
class StagedRow:
    """One network, by stage.

    Attributes:
        data, configuration, name: which.
        images, channels: how many were trained on, and how many a stage hands on.
        test, train: accuracies of the networks of one stage, two stages and so on; ``train`` is the mean of the last
            epoch, with augmentation.
        rates: learning rates.
        seconds: of all stages.
        gaps: certified relative gap of every stage on ``certified`` images, for its gates.
        end_to_end: test accuracy of the plain CNN after as many seconds, NaN where there was none.
        n_test: how many images were tested on.
    """

    data: str
    configuration: str
    name: str
    images: int
    channels: int
    test: tuple[float, ...]
    train: tuple[float, ...]
    rates: tuple[float, ...]
    seconds: float
    gaps: tuple[float, ...] = ()
    certified: int = 0
    end_to_end: float = math.nan
    n_test: int = 10_000


def grow_all(plans: Sequence[Plan], data: ImageData, scale: str, means: Context) -> list[StagedRow]:
    """Every network of an experiment; those that an earlier run finished are read from its folder."""
    return [_kept_or_grown(plan, data, scale, means) for plan in plans]


def _kept_or_grown(plan: Plan, data: ImageData, scale: str, means: Context) -> StagedRow:
    part = means.folder / f"{data.name}-{hashlib.sha256(repr(plan).encode()).hexdigest()[:12]}.json"
    if part.is_file():
        return kept(part.read_text(encoding="utf-8"))[0]
    row = grow(plan, data, scale, means.device, lambda record: means.say(_words(data.name, plan, record)))
    keep([row], part)
    return row


def _words(name: str, plan: Plan, record: EpochRecord) -> str:
    where = f"{name}, {plan.name}: stage {record.stage} epoch {record.epoch}"
    return f"{where}: loss {record.loss:.4f}, accuracy {record.accuracy:.4f}, {record.seconds:.0f} s"


def grow(
    plan: Plan, data: ImageData, configuration: str, device: str = "cpu", on_epoch: OnEpoch | None = None
) -> StagedRow:
    """Train a network by its plan, and measure every stage."""
    images, labels = (torch.from_numpy(part[: plan.images]) for part in (data.train_images, data.train_labels))
    trainer = LayerwiseTrainer(
        plan.settings, images, labels, len(data.classes), torch.device(device), on_epoch=on_epoch
    )
    began = time.perf_counter()
    grown = trainer.run()
    seconds, stages = time.perf_counter() - began, range(1, plan.settings.n_stages + 1)
    parts = [grown.network.upto(count) for count in stages]
    last = {record.stage: record.accuracy for record in grown.history}
    row = StagedRow(
        data.name,
        configuration,
        plan.name,
        len(images),
        plan.settings.gates * plan.settings.factors,
        tuple(accuracy(part, data) for part in parts),
        tuple(last[count] for count in stages),
        grown.rates,
        seconds,
        tuple(_gap(part, images, labels, plan) for part in parts if plan.certified),
        plan.certified,
        n_test=len(data.test_labels),
    )
    return row if not plan.end_to_end else _beside(row, plan, images, labels, data, device)


def _gap(network: LayerwiseNetwork, images: Tensor, labels: Tensor, plan: Plan) -> float:
    some = slice(plan.certified)
    return certify_stage(network, images[some], labels[some], plan.settings.weight_decay).relative_gap


def _beside(row: StagedRow, plan: Plan, images: Tensor, labels: Tensor, data: ImageData, device: str) -> StagedRow:
    rival = train_end_to_end(plan.settings, images, labels, len(data.classes), row.seconds, device=device)
    return replace(row, end_to_end=accuracy(rival.network, data))


def accuracy(network: nn.Module, data: ImageData) -> float:
    """The share of test images that are recognised."""
    device = next(network.parameters()).device
    hits = []
    with torch.no_grad():
        for start in range(0, len(data.test_labels), _AT_ONCE):
            x = torch.from_numpy(data.test_images[start : start + _AT_ONCE]).to(device, torch.float32)
            hits.append(network(x).argmax(1).cpu().numpy() == data.test_labels[start : start + _AT_ONCE])
    return float(np.concatenate(hits).mean())


def keep(rows: Sequence[StagedRow], path: str | os.PathLike[str]) -> None:
    """Write rows as JSON, with null for NaN."""
    plain = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
    write_atomically(path, json.dumps(plain, indent=1, allow_nan=False).encode())


def kept(text: str) -> list[StagedRow]:
    """Rows from JSON."""
    return [_row(row) for row in json.loads(text)]


def _row(fields: dict[str, Any]) -> StagedRow:
    known = {k: math.nan if v is None else v for k, v in fields.items()}
    parts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
    return StagedRow(**parts)


def table(rows: Sequence[StagedRow]) -> str:
    """Markdown: a line for each network."""
    count = max(len(row.test) for row in rows)
    stages = [f"stage {k}" for k in range(1, count + 1)]
    head = ["data", "configuration", "network", "images", *stages, "train", "end to end", "seconds", "certified gaps"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + [_line(row, count) for row in rows])


def _line(row: StagedRow, count: int) -> str:
    tests = [f"{value:.4f}" for value in row.test] + ["-"] * (count - len(row.test))
    rival = "-" if math.isnan(row.end_to_end) else f"{row.end_to_end:.4f}"
    gaps = ", ".join(f"{gap:.3f}" for gap in row.gaps) + f" ({row.certified} images)" if row.gaps else "-"
    cells = [row.data, row.configuration, row.name, str(row.images), *tests, f"{row.train[-1]:.4f}", rival]
    return "| " + " | ".join([*cells, f"{row.seconds:.0f}", gaps]) + " |"


def improves(rows: Sequence[StagedRow], paper: str) -> Claim:
    """Whether every stage of every network is better than the one before, by more than the noise of the test images."""
    worse = [
        f"{row.data}, {row.name}: {' / '.join(f'{value:.3f}' for value in row.test)}"
        for row in rows
        if not all(clearly_above(after, before, row.n_test) for before, after in pairwise(row.test))
    ]
    ours = f"{len(rows) - len(worse)} of {len(rows)} networks improve at every stage by more than noise"
    return Claim(paper, ours, not worse, "not " + "; ".join(worse) if worse else "")


def draw(sets: Mapping[str, Sequence[StagedRow]], suffix: str = ".png") -> bytes:
    """Test accuracy (and, dotted, training accuracy) against the stage; a panel for each data set."""
    figure = new_figure(4.8 * len(sets) + 0.4, 4.2)
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, sets.items(), strict=True):
        for row, colour in zip(rows, COLOURS, strict=False):
            _curve(axes, row, colour)
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xlabel("stage")
        axes.set_xticks(range(1, max(len(row.test) for row in rows) + 1))
        if np.isfinite([row.train for row in rows]).all():
            axes.plot([], [], ":", color=GREY, lw=1, label="dotted: training")
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        plain(axes)
    panels[0].set_ylabel("accuracy")
    return figure_bytes(figure, suffix)


def _curve(axes: Axes, row: StagedRow, colour: str) -> None:
    stages = range(1, len(row.test) + 1)
    axes.plot(stages, row.test, "o-", color=colour, label=f"{row.name}, {row.images:,} images")
    axes.plot(stages, row.train, ":", color=colour, lw=1)
    if not math.isnan(row.end_to_end):
        axes.axhline(row.end_to_end, color=GREY, ls="--", lw=1, label="end to end, same time: test")


def staged_finding(
    sets: Mapping[str, Sequence[StagedRow]], claims: tuple[Claim, ...], chosen: Mapping[str, Sequence[Plan]]
) -> Finding:
    """What an experiment on stages returns."""
    rows = [row for each in sets.values() for row in each]
    return Finding(sets, claims, table(rows), lambda suffix: draw(sets, suffix), chosen)
