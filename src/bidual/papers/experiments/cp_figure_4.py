"""R7, CP Fig. 4 (A.1.1): from noise to images, by the relaxation (20), its rounded network and gradient descent."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter
from numpy import ndarray
from torch import Tensor

from bidual.estimators.whitening import ZCAWhitening
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments.descent import DescentRun, GradientDescent
from bidual.papers.experiments.whitened_images import balanced
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.solvers.driver import solve
from bidual.training.copositive import Copositive, relax
from bidual.training.copositive.relaxed import Compact
from bidual.training.relu.closed_form import closed_form

MULTIPLES = (0.01, 0.03, 0.1, 0.3, 0.7, 1.01, 1.5)
_FLOOR = 1e-11  # what is smaller is drawn here


@dataclass(frozen=True)
class Settings:
    """How long each method may take.

    Attributes:
        n_neurons, epochs: of gradient descent; with 0 epochs there is none. CP A.1.1 has 1000 and 60,000.
        steps: learning rates of gradient descent, largest first; the first that does not diverge is used.
        tol, max_time: of the rounded network, for each beta.
        seed: of the noise and all methods.
    """

    n_neurons: int = 1000
    epochs: int = 2000
    steps: tuple[float, ...] = (2e-2, 1e-2, 5e-3, 3e-3, 1e-3, 3e-4, 1e-4, 5e-5)
    tol: float = 1e-6
    max_time: float | None = 40
    seed: int = 0


@dataclass(frozen=True)
class ImageRow:
    """One beta.

    Attributes:
        beta, multiple: weight decay, and its multiple of the second singular value of Y.
        lower_bound, relax_seconds: what the relaxation (20) proves.
        network, gap, neurons, seconds: of the rounded network; the gap is certified by a relaxation of its own, and the
            seconds are for both. All seconds are of the processor, which other programs do not lengthen.
        closed_form: the optimum by Theorem 2, NaN where it does not apply.
        descent, step, descent_seconds: the least objective that gradient descent met, and its learning rate; NaN where
            there was no descent.
    """

    beta: float
    multiple: float
    lower_bound: float
    relax_seconds: float
    network: float
    gap: float
    neurons: int
    seconds: float
    closed_form: float
    descent: float = math.nan
    step: float = math.nan
    descent_seconds: float = math.nan

    def above(self, value: float) -> float:
        """How far a value is above the lower bound, relatively."""
        return value / self.lower_bound - 1


def targets(
    images: UInt8[ndarray, "N ..."], labels: UInt8[ndarray, " N"], per_class: int = 10, seed: int = 0
) -> Float[Tensor, "n c"]:
    """As many random images of each class, flattened, with pixels in [0, 1]."""
    if len(images) != len(labels):
        raise ValueError(f"images and labels must be as many, got {len(images)} and {len(labels)}.")
    chosen = balanced(labels, per_class, seed)
    return torch.from_numpy(images[chosen].reshape(len(chosen), -1) / 255.0)


def blobs(n: int = 100, side: int = 28, seed: int = 0) -> Float[Tensor, "n c"]:
    """Images of three soft spots each, for those who have no files."""
    rng = np.random.default_rng(seed)
    ticks = np.linspace(0, 1, side)
    centres, sizes = rng.random((2, n, 3, 1)), 0.05 + 0.15 * rng.random((n, 3, 1))
    across, down = (np.exp(-(((ticks - c) / sizes) ** 2)) for c in centres)
    return torch.from_numpy(np.einsum("nki,nkj->nij", down, across).clip(max=1).reshape(n, -1))


def noise(n: int, d: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Normal samples, whitened without de-meaning: X X^T = I. De-meaned data would not be spike-free."""
    return torch.from_numpy(ZCAWhitening(center=False).fit_transform(np.random.default_rng(seed).normal(size=(n, d))))


def run(
    Y: Float[Tensor, "n c"], multiples: Sequence[float] = MULTIPLES, settings: Settings | None = None
) -> list[ImageRow]:
    """Every multiple of the second singular value of Y as beta, and one 5 % above the first: noise X of the size of Y.

    The optimum depends on X X^T = I and Y Y^T only, so that everything happens in at most n input and n output
    coordinates; the relaxation finds these by itself (:class:`Compact`), and gradient descent is given them.
    """
    settings = Settings() if settings is None else settings
    first, second = torch.linalg.svdvals(Y)[:2].tolist()
    X = noise(len(Y), Y.shape[1], settings.seed)
    problem = ReluProblem(X, Datafit(Squared(), Y), second)
    betas = [multiple * second for multiple in multiples] + [1.05 * first]
    return [_row(problem.with_beta(beta), second, settings) for beta in betas]


def _row(problem: ReluProblem, second: float, settings: Settings) -> ImageRow:
    began = time.process_time()
    bound = relax(problem, "spike_free")
    relaxed = time.process_time()
    limits = Limits(settings.tol, max_time=settings.max_time)
    done = solve(problem, Copositive("spike_free", seed=settings.seed), limits)
    seconds, certificate = time.process_time() - relaxed, done.certificate
    row = ImageRow(
        problem.beta,
        problem.beta / second,
        max(bound.dual, certificate.dual),
        relaxed - began,
        certificate.primal,
        certificate.relative_gap,
        int((done.Z.abs().amax((1, 2)) > 0).sum()),
        seconds,
        closed_form(problem).objective,
    )
    return row if not settings.epochs else _with_descent(row, problem, settings)


def _with_descent(row: ImageRow, problem: ReluProblem, settings: Settings) -> ImageRow:
    began, small = time.process_time(), Compact.of(problem).problem
    run = descend(small, settings)
    lowest, seconds = float(run.objective.min()), time.process_time() - began
    return replace(row, descent=lowest, step=run.step, descent_seconds=seconds)


def descend(problem: ReluProblem, settings: Settings) -> DescentRun:
    """Full-batch gradient descent as in CP A.1."""
    method = GradientDescent(settings.n_neurons, settings.epochs, steps=settings.steps)
    return method.run(problem.X, problem.datafit.targets, problem.beta, (settings.seed + 1,))


def table(rows: Sequence[ImageRow]) -> str:
    """Markdown: a line for each beta; distances are relative to the relaxation's bound."""
    head = (
        "| beta / sigma_2 | beta | relaxation (20) | seconds | rounded network above it | neurons | seconds "
        "| Theorem 2 above it | descent above it | step | seconds |"
    )
    return "\n".join([head, "|" + "---|" * 11, *map(_line, rows)])


def _line(row: ImageRow) -> str:
    formula = "does not apply" if math.isnan(row.closed_form) else f"{row.above(row.closed_form):.1e}"
    return (
        f"| {row.multiple:.3g} | {row.beta:.4g} | {row.lower_bound:.5f} | {row.relax_seconds:.1f} "
        f"| {row.above(row.network):.1e} | {row.neurons} | {row.seconds:.1f} | {formula} "
        f"| {row.above(row.descent):.1e} | {row.step:g} | {row.descent_seconds:.0f} |"
    )


def draw(sets: Mapping[str, Sequence[ImageRow]], suffix: str = ".png") -> bytes:
    """Objectives, and below them distances to the certified lower bound, against beta; a column for each set."""
    figure = new_figure(5.2 * len(sets) + 0.4, 6.4)
    panels = figure.subplots(2, len(sets), sharex="col", squeeze=False, height_ratios=[1, 1.2])
    for (name, rows), above, below in zip(sets.items(), *panels, strict=True):
        _objectives(above, rows)
        _distances(below, rows)
        above.set_title(name, loc="left", fontsize=11)
        for axes in (above, below):
            axes.axvline(1, color=GREY, linestyle=":", linewidth=1)
            axes.set_xscale("log")
            plain(axes)
        below.set_xlabel(r"weight decay $\beta$ / $\sigma_2(Y)$")
    panels[0][0].set_ylabel("objective")
    panels[1][0].set_ylabel("above the certified bound, relatively")
    handles = zip(*(axes.get_legend_handles_labels() for axes in panels[:, 0]), strict=True)
    figure.legend(*(one + two for one, two in handles), loc="outside upper center", ncols=3, frameon=False)
    return figure_bytes(figure, suffix)


def _objectives(axes: Axes, rows: Sequence[ImageRow]) -> None:
    multiples = [row.multiple for row in rows]
    axes.plot(multiples, [row.lower_bound for row in rows], "-", color=GREY, label="relaxation (20), a lower bound")
    for name, marker, colour, size in _SERIES:
        axes.plot(multiples, [getattr(row, name) for row in rows], marker, color=colour, ms=size, mfc="none")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _distances(axes: Axes, rows: Sequence[ImageRow]) -> None:
    for name, marker, colour, size in _SERIES:
        values = [max(row.above(getattr(row, name)), _FLOOR) for row in rows]
        kept = [(row.multiple, value) for row, value in zip(rows, values, strict=True) if math.isfinite(value)]
        across, up = zip(*kept, strict=True) if kept else ((), ())
        axes.plot(across, up, f"{marker}-", color=colour, lw=1, ms=size, mfc="none", label=_TITLES[name])
    axes.axhline(0.01, color=GREY, linestyle="--", linewidth=1, label="one percent")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=12))


_TITLES = {
    "network": "rounded network",
    "closed_form": "closed form (Theorem 2)",
    "descent": "gradient descent",
}
_SERIES = (("network", "o", COLOURS[0], 6), ("closed_form", "D", COLOURS[2], 9), ("descent", "x", COLOURS[1], 7))


SETTINGS: Mapping[Scale, tuple[Settings, Sequence[float], int]] = {  # with multiples, and images of each class
    "paper": (Settings(epochs=60_000, steps=(5e-5,), max_time=None), MULTIPLES, 10),
    "cpu": (Settings(max_time=20), MULTIPLES, 10),
    "smoke": (Settings(n_neurons=60, epochs=200, max_time=2), (0.3, 1.01), 2),
}
_NEARLY = 1e-2  # relatively


def claims(sets: Mapping[str, Sequence[ImageRow]]) -> tuple[Claim, ...]:
    """What CP says in A.1.1."""
    rows = [row for each in sets.values() for row in each]
    near, worst = [row for row in rows if row.above(row.descent) <= _NEARLY], max(r.above(r.network) for r in rows)
    lowest = min(row.above(min(row.descent, row.network)) for row in rows)
    return (
        Claim(
            "the relaxation (20) and SGD nearly correspond for almost all beta",
            f"SGD within {_NEARLY:.0%} of the bound at {len(near)} of {len(rows)} beta; rounded networks within "
            f"{worst:.2%}",
            len(near) >= 0.9 * len(rows),
        ),
        _where(sets),
        Claim(
            "the relaxation is a lower bound of the training objective",
            f"no network is below it: the nearest is {lowest:.0e} above",
            lowest >= -1e-9,
        ),
    )


def _where(sets: Mapping[str, Sequence[ImageRow]]) -> Claim:
    """At which beta SGD is farther from the bound than what nearly corresponds."""
    far = {name: [row for row in rows if not row.above(row.descent) <= _NEARLY] for name, rows in sets.items()}
    worst = {name: max(rows, key=lambda row: row.above(row.descent)) for name, rows in sets.items()}
    ours = "; ".join(
        f"{name}: at {len(far[name])} beta, farthest {row.above(row.descent):.2%} at {row.multiple:g} sigma_2"
        for name, row in worst.items()
    )
    return Claim(
        "they differ at the lowest beta only, for numerical reasons",
        f"SGD more than {_NEARLY:.0%} from the bound: {ours}",
        all(rows in ([], [sets[name][0]]) for name, rows in far.items()),
        "the relaxation is solved to 1e-12 or better, so that the rest is SGD or a relaxation that is not tight",
    )


def study(scale: Scale, means: Context) -> Finding:
    """Both sets of images, and the claims."""
    settings, multiples, per_class = SETTINGS[scale]
    sets = {}
    for title, data in (("MNIST", means.images("mnist", "test")), ("CIFAR-10", means.images("cifar-10", "train"))):
        images, labels = (
            (data.test_images, data.test_labels) if title == "MNIST" else (data.train_images, data.train_labels)
        )
        sets[title] = run(targets(images, labels.astype(np.uint8), per_class, settings.seed), multiples, settings)
        means.say(f"{title}: done")
    text = "\n\n".join(f"**{title}**\n\n{table(rows)}" for title, rows in sets.items())
    configuration = {"settings": settings, "multiples": multiples, "per_class": per_class}
    return Finding(sets, claims(sets), text, lambda suffix: draw(sets, suffix), configuration)


EXPERIMENT = Experiment(
    "R7",
    "cp_figure_4",
    "From noise to images: the relaxation (20), its rounded network and SGD",
    "CP Fig. 4",
    0,
    study,
    ("mnist", "cifar-10"),
)
