"""R9, PR Fig. 1: decision regions on a spiral of two classes, of two layers, three with weight decay, three with paths.

PR says that only the third learns the spiral. Each is solved with and without a constant column: without one, a network
is positively homogeneous, so its regions are cones, whatever its depth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.architectures.modules import RebuildableModule
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.constrained import solve_constrained
from bidual.papers.methods.sampled_patterns import sample
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.patterns import with_constant
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure

TITLES = {
    "two_layer": "two layers, weight decay",
    "weight_decay": "three layers, weight decay",
    "path": "three layers, path norm",
}
_ARM = 1000  # points of each arm that stand for the continuous spiral
_AT_ONCE = 4096


@dataclass(frozen=True)
class Setting:
    """(n, m_1, P_1, P_2, beta) of PR A.1, and P for two layers; m_2 = 1.

    ``turns``, radii and spacing are ours: the paper says no more than "spiral". Arm j runs from radius 0.1 to 1 and
    from angle pi j over ``turns`` turns, without noise. By default no two samples lie on one ray, where a network
    without a constant column could not tell them apart.
    """

    n: int = 30
    width: int = 5
    firsts: int = 11
    seconds: int = 11
    patterns: int = 50
    beta: float = 1e-4
    turns: float = 1.75

    def spiral(self, n: int | None = None) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n 1"]]:
        """Samples along both arms, and labels +1 and -1."""
        n = self.n if n is None else n
        if n < 4 or n % 2:
            raise ValueError(f"n must be an even number of at least 4, got {n}.")
        t = (torch.arange(n // 2, dtype=torch.float64) + 0.5) / (n // 2)
        radius, angle = 0.1 + 0.9 * t, 2 * torch.pi * self.turns * t
        arm = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
        return torch.cat([arm, -arm]), torch.cat([torch.ones_like(t), -torch.ones_like(t)])[:, None]


@dataclass(frozen=True, eq=False)
class SpiralModel:
    """One panel: the optimum over sampled cells, as a network.

    Attributes:
        model: a key of ``TITLES``.
        bias: whether the samples have a constant column.
        seed, setting: of the cells.
        loss: 1/2 sum of squared errors.
        objective, gap: of the convex program over the cells, with the certified relative gap.
        train_accuracy: on the n samples.
        spiral_accuracy: on 2000 points of the same two arms.
        networks: sub-networks (neurons) in use.
        seconds: of the program.
    """

    model: str
    bias: bool
    seed: int
    setting: Setting
    loss: float
    objective: float
    gap: float
    train_accuracy: float
    spiral_accuracy: float
    networks: int
    seconds: float
    module: RebuildableModule = field(repr=False)


def run(setting: Setting | None = None, seeds: Sequence[int] = (0,)) -> list[SpiralModel]:
    """All panels, for every seed of the cells."""
    setting = Setting() if setting is None else setting
    return [solve(model, bias, seed, setting) for seed in seeds for bias in (False, True) for model in TITLES]


def solve(model: str, bias: bool, seed: int, setting: Setting) -> SpiralModel:
    """One panel."""
    points, y = setting.spiral()
    X = with_constant(points) if bias else points
    cells = _cells(model, X, seed, setting)
    norm = "weight_decay" if model == "weight_decay" else "path"
    found = solve_constrained(cells, X, Datafit(Squared(), y), setting.beta, norm=norm)
    module = found.networks.decode(cells.width, bias)
    everywhere, labels = setting.spiral(2 * _ARM)
    return SpiralModel(
        model,
        bias,
        seed,
        setting,
        float(0.5 * (outputs(module, points) - y).square().sum()),
        found.objective,
        found.certificate.relative_gap,
        _accuracy(module, points, y),
        _accuracy(module, everywhere, labels),
        len(found.networks.neurons),
        found.seconds,
        module,
    )


def _cells(model: str, X: Tensor, seed: int, setting: Setting) -> SubNetworkGates:
    """P_1 x P_2 cells; two layers are sub-networks with one unit and sign +1, which the second ReLU leaves alone."""
    if model == "two_layer":
        directions = sample(X, setting.patterns, seed).directions
        return SubNetworkGates(directions[:, :, None], directions.new_ones(len(directions), 1))
    generator = torch.Generator().manual_seed(seed)
    return SubNetworkGates.product(X.shape[1], setting.firsts, setting.seconds, setting.width, generator)


def outputs(module: RebuildableModule, points: Float[Tensor, "n 2"]) -> Float[Tensor, "n 1"]:
    """Predictions, a few points at a time."""
    with torch.no_grad():
        return torch.cat([module(part) for part in points.split(_AT_ONCE)])


def _accuracy(module: RebuildableModule, points: Tensor, labels: Tensor) -> float:
    return float((outputs(module, points) * labels > 0).double().mean())


def table(models: Sequence[SpiralModel]) -> str:
    """Markdown: a line for each panel and seed."""
    head = "| model | bias | seed | loss | objective | certified gap | train | whole spiral | sub-networks | seconds |"
    lines = [
        f"| {TITLES[m.model]} | {'yes' if m.bias else 'no'} | {m.seed} | {m.loss:.3g} | {m.objective:.4g} "
        f"| {m.gap:.1e} | {m.train_accuracy:.2f} | {m.spiral_accuracy:.2f} | {m.networks} | {m.seconds:.1f} |"
        for m in models
    ]
    return "\n".join([head, "|" + "---|" * 10, *lines])


def draw(models: Sequence[SpiralModel], suffix: str = ".png") -> bytes:
    """Regions of every panel of the first seed: above without a constant column, below with one."""
    first = [m for m in models if m.seed == models[0].seed]
    figure = new_figure(10.5, 7.6)
    grid = figure.subplots(2, len(TITLES), squeeze=False)
    for axes_row, bias in zip(grid, (False, True), strict=True):
        for axes, model in zip(axes_row, TITLES, strict=True):
            found = next((m for m in first if (m.model, m.bias) == (model, bias)), None)
            axes.set_visible(found is not None)
            if found is not None:
                _panel(axes, found)
        axes_row[0].set_ylabel("with a constant column" if bias else "without a constant column", color=GREY)
    return figure_bytes(figure, suffix)


def _panel(axes: Axes, found: SpiralModel, reach: float = 1.15) -> None:
    ticks = np.linspace(-reach, reach, 300)
    points = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    side = outputs(found.module, torch.from_numpy(points)).reshape(len(ticks), -1).numpy() > 0
    extent, colours = (-reach, reach, -reach, reach), ListedColormap([COLOURS[1], COLOURS[0]])
    axes.imshow(side, origin="lower", extent=extent, cmap=colours, alpha=0.25, vmin=0, vmax=1)
    arms, _ = found.setting.spiral(2 * _ARM)
    X, y = found.setting.spiral()
    for arm, sign, colour in ((arms[:_ARM], 1, COLOURS[0]), (arms[_ARM:], -1, COLOURS[1])):
        across, up = X[y[:, 0] == sign].T
        axes.plot(arm[:, 0], arm[:, 1], color=colour, linewidth=1, alpha=0.6)
        axes.scatter(across, up, s=22, color=colour, edgecolor="white", linewidth=0.6, zorder=3)
    axes.set_title(
        f"{TITLES[found.model]}\ntrain {found.train_accuracy:.2f}, whole spiral {found.spiral_accuracy:.2f}",
        loc="left",
        fontsize=10,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")


SETTINGS: Mapping[Scale, tuple[Setting, Sequence[int]]] = {  # with seeds of the cells
    "paper": (Setting(), (0, 1, 2)),
    "cpu": (Setting(), (0, 1, 2)),
    "smoke": (Setting(n=10, width=2, firsts=3, seconds=3, patterns=8), (0,)),
}
_LEARNT = 0.95  # accuracy on the whole spiral


def claims(models: Sequence[SpiralModel]) -> tuple[Claim, ...]:
    """PR Fig. 1, with and without a constant column."""
    reading = f"learnt: accuracy of at least {_LEARNT:.0%} on the whole spiral, mean over seeds of the cells"
    return (
        _only_the_third(models, False, f"{reading}; without a bias every region is a cone, whatever the depth"),
        _only_the_third(models, True, reading),
        Claim(
            "three-layer networks readily interpolate the training data",
            _accuracies(models, True, "train_accuracy"),
            all(m.train_accuracy == 1 for m in models if m.bias and m.model != "two_layer"),
            "with a constant column",
        ),
    )


def _only_the_third(models: Sequence[SpiralModel], bias: bool, why: str) -> Claim:
    found = {model: _mean(models, model, bias, "spiral_accuracy") for model in TITLES}
    holds = found["path"] >= _LEARNT and max(found["two_layer"], found["weight_decay"]) < _LEARNT
    where = "with" if bias else "without"
    paper = f"only three layers under the path norm learn the spiral, {where} a constant column"
    return Claim(paper, _accuracies(models, bias, "spiral_accuracy"), holds, why)


def _accuracies(models: Sequence[SpiralModel], bias: bool, kind: str) -> str:
    return "; ".join(f"{title}: {_mean(models, model, bias, kind):.2f}" for model, title in TITLES.items())


def _mean(models: Sequence[SpiralModel], model: str, bias: bool, kind: str) -> float:
    return float(np.mean([getattr(m, kind) for m in models if (m.model, m.bias) == (model, bias)]))


def study(scale: Scale, means: Context) -> Finding:
    """Solve every panel, and check the claims."""
    setting, seeds = SETTINGS[scale]
    models = run(setting, seeds)
    configuration = {"setting": setting, "seeds": seeds}
    return Finding(models, claims(models), table(models), lambda suffix: draw(models, suffix), configuration)


EXPERIMENT = Experiment(
    "R9",
    "pr_figure_1",
    "Decision regions on the spiral: two layers, three with weight decay, three with the path norm",
    "PR Fig. 1",
    0,
    study,
)
