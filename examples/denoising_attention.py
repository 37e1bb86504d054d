"""Sequences denoised by self-attention at its certified optimum, and a picture of what its heads attend to.

A sequence has three kinds of tokens, 120 degrees apart on the unit circle, and is turned by a random angle. A noisy
token alone tells little about its place; tokens of the same kind, averaged, tell much more. Which ones these are must
be seen from pairs of tokens: that is what attention does.

Usage: python examples/denoising_attention.py [--out FOLDER]
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from bidual import ConvexAttentionRegressor, ConvexMLPRegressor
from bidual.estimators.base import ConvexEstimator
from bidual.problems.certificate import Certificate
from bidual.reporting.plots import COLOURS, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically

KINDS = 3
HEADS = 3  # shown
LINEAR, GATED, OWN = "linear attention", "gated attention", "gated attention, own gates"
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sequences:
    """``noisy`` and ``clean`` tokens (n, s, 2), and the kind of every token (n, s)."""

    noisy: Array
    clean: Array
    kind: NDArray[np.int64]

    @property
    def inputs(self) -> Array:
        """Noisy tokens with a constant behind them, so that scores can have thresholds and be constant."""
        return np.concatenate([self.noisy, np.ones((*self.noisy.shape[:2], 1))], axis=2)

    def error(self, guess: Array) -> float:
        """The mean squared error of one number of a token."""
        return float(np.mean((guess - self.clean) ** 2))


@dataclass(frozen=True, eq=False)
class Denoiser:
    """A trained denoiser with its test error; ``network`` and ``certificate`` where there are such."""

    name: str
    error: float
    network: nn.Module | None = None
    certificate: Certificate | None = None
    beta: float = 0.0
    beta_max: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Result:
    """All denoisers, the test sequences, and the two programs of linear attention at one beta."""

    denoisers: tuple[Denoiser, ...]
    test: Sequences
    convex: Certificate
    factored: Certificate
    relu: ConvexAttentionRegressor | None

    def __getitem__(self, name: str) -> Denoiser:
        return next(one for one in self.denoisers if one.name == name)


def make_sequences(count: int, tokens: int, noise: float, rng: np.random.Generator) -> Sequences:
    """Equally many tokens of every kind, in random order."""
    kind = rng.permuted(np.tile(np.arange(tokens) % KINDS, (count, 1)), axis=1)
    angle = rng.uniform(0, 2 * np.pi, (count, 1)) + 2 * np.pi * kind / KINDS
    clean = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    return Sequences(clean + noise * rng.standard_normal(clean.shape), clean, kind)


def rotation_gates(angles: int = 6, thresholds: Sequence[float] = (0.0, 0.4, 0.8)) -> Array:
    """Gates that are on where a token, turned by an angle, lies along another one by at least a threshold."""
    gates = []
    for threshold in thresholds:
        for angle in 2 * np.pi * np.arange(angles) / angles:
            H = np.zeros((3, 3))
            H[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            H[2, 2] = -threshold
            gates.append(H.ravel(order="F"))
    return np.stack(gates, axis=1)


def average_of_kind(sequences: Sequences) -> Array:
    """What one could do who knows the kinds: average all tokens of one kind."""
    same = sequences.kind[:, :, None] == sequences.kind[:, None, :]
    return same / same.sum(2, keepdims=True) @ sequences.noisy


def token_rows(inputs: Array) -> Array:
    return inputs[:, :, :2].reshape(-1, 2)


def trained(name: str, estimator: ConvexEstimator, sets: Sequence[Sequences], decades: int) -> Denoiser:
    """The network with the smallest error on the validation set among weight decays from beta_max / 10 downwards."""
    alone = isinstance(estimator, ConvexMLPRegressor)
    train, valid, test = sets
    ready = [token_rows(some.inputs) if alone else some.inputs for some in sets]
    target = token_rows(train.clean) if alone else train.clean
    began = time.perf_counter()
    fits = [clone(estimator).fit(ready[0], target)]
    beta_max = fits[0].beta_max_
    fits += [clone(estimator).set_params(beta=beta_max / 10**k).fit(ready[0], target) for k in range(2, decades + 1)]
    seconds = time.perf_counter() - began
    best = min(fits, key=lambda fit: valid.error(denoise(fit.module_, ready[1], valid)))
    error = test.error(denoise(best.module_, ready[2], test))
    return Denoiser(name, error, best.module_, best.certificate_, best.beta_, beta_max, seconds)


def denoise(network: nn.Module, inputs: Array, like: Sequences) -> Array:
    with torch.no_grad():
        return network(torch.tensor(inputs)).numpy().reshape(like.clean.shape)


def run(
    train: int = 200,
    test: int = 500,
    tokens: int = 12,
    noise: float = 0.3,
    decades: int = 4,
    tol: float = 1e-3,
    relu: bool = True,
) -> Result:
    """Train all denoisers on ``train`` sequences, choose weight decays on as many others, and test."""
    rng = np.random.default_rng(0)
    sets = [make_sequences(count, tokens, noise, rng) for count in (train, train, test)]
    fitted, held = sets[0], sets[2]
    ridge = Ridge().fit(token_rows(fitted.inputs), token_rows(fitted.clean))
    networks = {
        "network on one token": ConvexMLPRegressor(activation="gated_relu", n_gates=200, tol=tol),
        LINEAR: ConvexAttentionRegressor(activation="linear", tol=tol),
        GATED: ConvexAttentionRegressor(tol=tol),
        OWN: ConvexAttentionRegressor(gates=rotation_gates(), tol=tol),
    }
    denoisers = [
        Denoiser("noisy tokens", held.error(held.noisy)),
        Denoiser("ridge on one token", held.error(ridge.predict(token_rows(held.inputs)).reshape(held.clean.shape))),
        *(trained(name, estimator, sets, decades) for name, estimator in networks.items()),
        Denoiser("average of a known kind", held.error(average_of_kind(held))),
    ]
    beta = next(one.beta for one in denoisers if one.name == LINEAR)
    convex, factored = (linear_attention(fitted, beta, solver) for solver in ("auto", "burer_monteiro"))
    return Result(tuple(denoisers), held, convex, factored, small_relu(noise) if relu else None)


def linear_attention(train: Sequences, beta: float, solver: str) -> Certificate:
    """Linear attention by one solver, to a gap of 1e-6."""
    network = ConvexAttentionRegressor(activation="linear", beta=beta, solver=solver, tol=1e-6)
    return network.fit(train.inputs, train.clean).certificate_


def small_relu(noise: float) -> ConvexAttentionRegressor:
    """ReLU attention on tokens without the constant, d = 2: few enough pairs for a proof about all heads."""
    few = make_sequences(30, 6, noise, np.random.default_rng(1))
    network = ConvexAttentionRegressor(activation="relu", beta=20.0, tol=1e-2, max_time=60)
    return network.fit(few.noisy, few.clean)


def report(result: Result) -> str:
    """What was reached, in words."""
    lines = [f"{'test error':>10}  {'gap':>7}  {'heads':>5}  {'beta/beta_max':>13}  {'seconds':>7}"]
    for one in result.denoisers:
        lines.append(f"{one.error:10.4f}  {_details(one)}  {one.name}")
    lines.append("one hidden unit of the network on one token counts as a head; seconds are those of all weight decays")
    convex, factored = result.convex, result.factored
    lines.append(
        f"linear attention: optimum of the convex program {convex.primal:.9f} (gap {convex.relative_gap:.1e}), "
        f"of the heads by Burer-Monteiro {factored.primal:.9f} (gap {factored.relative_gap:.1e})"
    )
    if result.relu is not None:
        proof = result.relu.certificate_
        lines.append(
            f"relu attention, 30 sequences of 6 tokens, d = 2: gap {proof.relative_gap:.1e}, scope {proof.scope.name}, "
            f"beta/beta_max {result.relu.beta_ / result.relu.beta_max_:.2g}, {result.relu.n_neurons_} heads"
        )
    return "\n".join(lines)


def _details(one: Denoiser) -> str:
    if one.certificate is None:
        return " " * 38
    gap, heads = one.certificate.relative_gap, one.network.n_neurons
    return f"{gap:7.1e}  {heads:5d}  {one.beta / one.beta_max:13.2g}  {one.seconds:7.1f}"


def head_order(network: nn.Module) -> Tensor:
    """Heads, that of the largest |U_j| |V_j| first."""
    lengths = [torch.linalg.vector_norm(part.detach(), dim=(1, 2)) for part in (network.mixing, network.value)]
    return torch.argsort(lengths[0] * lengths[1], descending=True)


def shares(network: nn.Module, x: Tensor) -> Tensor:
    """How much of denoised token p comes from token q: the part along it of all heads' terms, as a fraction."""
    with torch.no_grad():
        terms = torch.einsum("jpq,qe,jec->pqc", network.maps(x[None])[0], x, network.value)
        output = network(x[None])[0]
    return torch.einsum("pqc,pc->pq", terms, output) / output.square().sum(1, keepdim=True)


def draw(result: Result, index: int = 0) -> bytes:
    """One test sequence, the attention maps on it, and the test errors of all denoisers."""
    figure = new_figure(13.5, 6.8)
    left, right = figure.subfigures(1, 2, width_ratios=[2.1, 1], wspace=0.03)
    upper, lower = left.subfigures(2, 1, height_ratios=[1, 1.25], hspace=0.03)
    _tokens(upper, result, index)
    _maps(lower, result, index)
    _errors(right, result)
    return figure_bytes(figure, ".png")


def _tokens(part: SubFigure, result: Result, index: int) -> None:
    test = result.test
    clean, kind, inputs = test.clean[index], test.kind[index], test.inputs[index : index + 1]
    panels = {"clean": clean, "noisy": test.noisy[index]}
    for name in (LINEAR, GATED):
        panels[name] = denoise(result[name].network, inputs, Sequences(inputs, clean[None], kind))[0]
    part.suptitle("The tokens of one test sequence, coloured by kind; crosses are the clean ones", fontsize=11)
    grid = part.subplots(1, len(panels))
    for axes, (name, tokens) in zip(grid, panels.items(), strict=True):
        for k in range(KINDS):
            axes.scatter(*tokens[kind == k].T, s=26, color=COLOURS[k], edgecolor="white", linewidth=0.5)
        if name != "clean":
            axes.plot(*clean.T, "x", color="black", markersize=6)
        axes.set(xlim=(-1.9, 1.9), ylim=(-1.9, 1.9), xticks=[-1, 0, 1], yticks=[-1, 0, 1], aspect="equal")
        axes.tick_params(labelsize=8)
        axes.set_title(name, fontsize=10)
        plain(axes)


def _maps(part: SubFigure, result: Result, index: int) -> None:
    network, kind = result[GATED].network, result.test.kind[index]
    x = torch.tensor(result.test.inputs[index][np.argsort(kind, kind="stable")])
    order = head_order(network)
    with torch.no_grad():
        maps = network.maps(x[None])[0, order[:HEADS]]
    maps = torch.where(maps.sum((1, 2), keepdim=True) < 0, -maps, maps)  # U_j and V_j may change sign together
    part.suptitle(
        f"Gated attention on it: scores of the first {len(maps)} of {network.n_neurons} heads, and all heads together "
        "(tokens sorted by kind)",
        fontsize=11,
    )
    grid = part.subplots(1, 1 + HEADS)
    limit = float(maps.abs().max())
    for place, (axes, one) in enumerate(zip(grid, maps, strict=False)):
        scores = _pairs(axes, one, limit, f"head {place + 1}", kind)
    total = shares(network, x)
    together = _pairs(grid[-1], total, float(total.abs().max()), "all heads", kind)
    grid[0].set_ylabel("token that is denoised", fontsize=9)
    for shown, axes, label in ((scores, grid[:-1], "score"), (together, grid[-1:], "share of the output")):
        bar = part.colorbar(
            shown, ax=axes.tolist(), location="bottom", shrink=0.8 if len(axes) == 1 else 0.5, aspect=26
        )
        bar.set_label(label, fontsize=9)
        bar.ax.tick_params(labelsize=8)


def _pairs(axes: Axes, values: Tensor, limit: float, title: str, kind: NDArray[np.int64]) -> AxesImage:
    """A matrix over pairs of tokens, with lines between kinds."""
    shown = axes.imshow(values.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
    for edge in np.cumsum(np.bincount(kind))[:-1] - 0.5:
        axes.axhline(edge, color="black", linewidth=0.8)
        axes.axvline(edge, color="black", linewidth=0.8)
    axes.set(xticks=[], yticks=[], title=title)
    axes.title.set_fontsize(10)
    axes.set_xlabel("token attended to", fontsize=9)
    return shown


def _errors(part: SubFigure, result: Result) -> None:
    axes = part.subplots()
    names = [
        one.name.replace(", ", ",\n").replace(" on ", "\non ").replace(" of ", "\nof ") for one in result.denoisers
    ]
    errors = [one.error for one in result.denoisers]
    colours = [COLOURS[3] if "attention" in name else COLOURS[0] for name in names]
    colours[0] = colours[-1] = "#aaaaaa"
    bars = axes.barh(names, errors, color=colours, height=0.62)
    axes.bar_label(bars, [f"{error:.4f}" for error in errors], padding=4, fontsize=9)
    axes.set_xlim(0, 1.2 * max(errors))
    axes.invert_yaxis()
    axes.set_xlabel("mean squared error on test sequences")
    worst = max(one.certificate.relative_gap for one in result.denoisers if one.certificate is not None)
    part.suptitle(f"Test errors; certified gaps of networks at most {worst:.1e}", fontsize=11)
    axes.tick_params(labelsize=9)
    plain(axes)
    axes.grid(False, axis="y")


def main(out: Path, **settings: float) -> Result:
    """Train, print and draw; the figure goes to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    result = run(**settings)
    print(report(result))
    write_atomically(out / "denoising_attention.png", draw(result))
    print(f"figure: {out / 'denoising_attention.png'}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
