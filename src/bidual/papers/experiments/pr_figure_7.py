"""R15, PR Fig. 7 (A.9): how fast the singular values of image data decay, and what Theorem 2 makes of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from matplotlib.axes import Axes
from numpy import ndarray

from bidual.io.datasets import IMAGE_SOURCES
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.patterns import count_bound
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain

SETS = ("mnist", "fashion-mnist", "cifar-10")
IMAGES: Mapping[Scale, int | None] = MappingProxyType(
    {"paper": None, "cpu": 10_000, "smoke": 60}
)  # of each set, at most
FRACTIONS = (0.1, 0.01)  # beta over beta_max
ACCURACY = 0.1
_SLICE = 2000
_RANGES = ("all", "head", "tail")


class Fit(NamedTuple):
    """A straight line through log10 of the values, by least squares.

    Attributes:
        rate: the decay, decades per index (exponential) or the exponent (power law).
        error: root mean square of what is left, in decades.
        r2: the share of the variance that it explains. All are NaN for fewer than three values, or equal ones.
    """

    rate: float
    error: float
    r2: float


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular values of one data matrix X (n, d), pixels in [0, 1], not centred.

    Attributes:
        name, images: the set, and which of its images these are.
        configuration: the scale.
        n, d: the shape of X.
        sigma: all singular values that are not rounding, largest first.
        steepest: sigma_1(Y^T X) for one-hot targets Y. X and Y are not negative, so that (X w)_+ <= X w_+ and no
            sub-network is steeper than one of equal units at the singular vector: beta_max = sqrt(m_1) steepest for
            squared loss.
    """

    name: str
    images: str
    configuration: str
    n: int
    d: int
    sigma: Float64[ndarray, " rank"]
    steepest: float

    @property
    def rank(self) -> int:
        return len(self.sigma)

    @property
    def normalised(self) -> Float64[ndarray, " rank"]:
        return self.sigma / self.sigma[0]

    def energy_rank(self, share: float) -> int:
        """How many values have this share of the sum of squares."""
        energy = np.cumsum(self.sigma**2)
        return min(int(np.searchsorted(energy, share * energy[-1])) + 1, self.rank)

    def fits(self, where: str = "all") -> tuple[Fit, Fit]:
        """Exponential and power law, for all values, those with 99 % of the energy ("head"), or the others ("tail")."""
        k99 = self.energy_rank(0.99)
        first, last = {"all": (0, self.rank), "head": (0, k99), "tail": (k99, self.rank)}[where]
        index, values = np.arange(first + 1, last + 1), np.log10(self.normalised[first:last])
        return _fit(index, values), _fit(np.log10(index), values)

    def factor(self, rank: int, fraction: float) -> float:
        r"""p_r <= factor * p* at beta = fraction * beta_max: Theorem 2 as corrected, for squared loss and one-hot Y.

        (1 + sqrt(m_1) sigma_(r+1) sqrt(F(0) / 2) / beta)^2 with F(0) = n / 2; the widths cancel against beta_max.
        """
        cut = self.sigma[rank] if rank < self.rank else 0.0
        return float(1 + cut * math.sqrt(self.n) / 2 / (fraction * self.steepest)) ** 2

    def rank_within(self, factor: float, fraction: float) -> int:
        """The smallest rank whose guarantee is at most ``factor``."""
        return next(r for r in range(1, self.rank + 1) if self.factor(r, fraction) <= factor)

    def rank_vacuous(self, fraction: float) -> int:
        """The largest rank whose guarantee says nothing, 0 if there is none.

        p* is concave in beta, at least 0 at 0 and F(0) at beta_max. So F(0) <= p* / fraction, and the zero network
        satisfies any guarantee from 1 / fraction on.
        """
        return self.rank_within(np.nextafter(1 / fraction, 0), fraction) - 1


def _fit(x: ndarray, y: ndarray) -> Fit:
    if len(x) < 3 or not y.std():
        return Fit(math.nan, math.nan, math.nan)
    slope, offset = np.polyfit(x, y, 1)
    rest = y - slope * x - offset
    return Fit(float(-slope), float(rest.std()), float(1 - rest.var() / y.var()))


def run(configuration: Scale, means: Context, names: Sequence[str] = SETS) -> list[Spectrum]:
    """The training images of every set, all that are there ("paper") or the first 10,000 ("cpu").

    Where a set has no training images its test images are taken, which ``images`` says.
    """
    return [_measure(name, configuration, means) for name in names]


def _measure(name: str, configuration: Scale, means: Context) -> Spectrum:
    try:
        data = means.images(name, "train")
        images, labels, kind = data.train_images, data.train_labels, "training"
    except FileNotFoundError:
        data = means.images(name, "test")
        images, labels, kind = data.test_images, data.test_labels, "test"
    most = IMAGES[configuration]
    images, labels = images[:most], labels[:most]
    return spectrum(images, labels, IMAGE_SOURCES[data.name].title, f"{len(images):,} {kind}", configuration)


def spectrum(
    images: UInt8[ndarray, "n ..."], labels: Int64[ndarray, " n"], name: str, kind: str, configuration: str
) -> Spectrum:
    """By the eigenvalues of X^T X, summed over slices.

    With bytes as pixels every entry is a whole number below 2^53, so that X^T X is exact, and only the eigenvalues are
    rounded: by about sqrt(d) eps lambda_1. Smaller ones are left out.
    """
    if not images.any():
        raise ValueError(f"the images of {name} must not be all black, or be none; their singular values are zero.")
    X = torch.from_numpy(images.reshape(len(images), -1))
    n, d = X.shape
    gram, sums = torch.zeros(d, d, dtype=torch.float64), torch.zeros(int(labels.max()) + 1, d, dtype=torch.float64)
    for rows, targets in zip(X.split(_SLICE), torch.from_numpy(labels).split(_SLICE), strict=True):
        pixels = rows.double()
        gram += pixels.T @ pixels
        sums.index_add_(0, targets, pixels)
    values = torch.linalg.eigvalsh(gram).flip(0)
    kept = values[values > math.sqrt(d) * torch.finfo(torch.float64).eps * values[0]]
    steepest = float(torch.linalg.matrix_norm(sums, 2)) / 255
    return Spectrum(name, kind, configuration, n, d, kept.sqrt().numpy() / 255, steepest)


def table(spectra: Sequence[Spectrum]) -> str:
    """Markdown: ranks, then fits, then Theorem 2, a line for each set."""
    ranks = [
        "| set | configuration | images | d | rank | 95 % of energy | 99 % | sigma_r / sigma_1 at 99 % |",
        "|" + "---|" * 8,
    ]
    fits = [
        "| set | values | exponential: halves every | error | R^2 | power law: exponent | error | R^2 |",
        "|" + "---|" * 8,
    ]
    bounds = [
        f"| set | beta / beta_max | vacuous up to rank | within {ACCURACY:.0%} from rank | of | patterns at it |",
        "|" + "---|" * 6,
    ]
    for one in spectra:
        k95, k99 = one.energy_rank(0.95), one.energy_rank(0.99)
        ranks.append(
            f"| {one.name} | {one.configuration} | {one.images} | {one.d} | {one.rank} | {k95} | {k99} "
            f"| {one.normalised[k99 - 1]:.1e} |"
        )
        fits += [_fit_line(one, where) for where in _RANGES]
        bounds += [_bound_line(one, fraction) for fraction in FRACTIONS]
    return "\n\n".join("\n".join(lines) for lines in (ranks, fits, bounds))


def _fit_line(one: Spectrum, where: str) -> str:
    exponential, power = one.fits(where)
    return (
        f"| {one.name} | {where} | {math.log10(2) / exponential.rate:.0f} values | {exponential.error:.3f} "
        f"| {exponential.r2:.3f} | {power.rate:.2f} | {power.error:.3f} | {power.r2:.3f} |"
    )


def _bound_line(one: Spectrum, fraction: float) -> str:
    within = one.rank_within(1 + ACCURACY, fraction)
    patterns = f"1e{math.log10(count_bound(one.n, within)):.0f}"
    return f"| {one.name} | {fraction:g} | {one.rank_vacuous(fraction)} | {within} | {one.rank} | {patterns} |"


def draw(spectra: Sequence[Spectrum], suffix: str = ".png") -> bytes:
    """Normalised singular values twice: an exponential is straight on the left, a power law on the right."""
    figure = new_figure(10.5, 4.6)
    left, right = figure.subplots(1, 2, sharey=True)
    for one, colour in zip(spectra, COLOURS, strict=False):
        for axes in (left, right):
            _curve(axes, one, colour)
    _power_laws(right, spectra)
    right.legend(frameon=False, loc="lower left")
    left.set_title("exponential decay would be straight", loc="left", fontsize=11)
    right.set_title("a power law would be straight", loc="left", fontsize=11)
    left.set_ylabel(r"$\sigma_k / \sigma_1$")
    right.set_xscale("log")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_xlabel("k")
        plain(axes)
    return figure_bytes(figure, suffix)


def _curve(axes: Axes, one: Spectrum, colour: str) -> None:
    label = f"{one.name}, {one.images} images"
    axes.plot(np.arange(1, one.rank + 1), one.normalised, color=colour, linewidth=1.6, label=label)
    k99 = one.energy_rank(0.99)
    axes.plot([k99], [one.normalised[k99 - 1]], "o", color=colour, markersize=6)


def _power_laws(axes: Axes, spectra: Sequence[Spectrum]) -> None:
    """Those fitted to the heads, as dashed lines."""
    for one in spectra:
        k99, (_, power) = one.energy_rank(0.99), one.fits("head")
        index = np.array([1, one.rank])
        middle = np.log10(one.normalised[:k99]).mean() + power.rate * np.log10(np.arange(1, k99 + 1)).mean()
        axes.plot(index, 10**middle * index**-power.rate, "--", color=GREY, linewidth=0.8)
    axes.plot([], [], "--", color=GREY, linewidth=0.8, label="power law of the head")
    axes.plot([], [], "o", color=GREY, label="99 % of the energy up to here")


def claims(spectra: Sequence[Spectrum]) -> tuple[Claim, ...]:
    """What PR says in A.9, for the sets that it names."""
    named = [one for one in spectra if one.name in ("MNIST", "CIFAR-10")]
    return (*map(_exponential, named), *(_close_to_one(one, min(FRACTIONS)) for one in named))


def _exponential(one: Spectrum) -> Claim:
    """An exponential must describe the values with 99 % of the energy better than a power law."""
    exponential, power = one.fits("head")
    ours = (
        f"the {one.energy_rank(0.99)} values with 99 % of the energy: exponential R^2 {exponential.r2:.3f}, power law "
        f"of exponent {power.rate:.2f} R^2 {power.r2:.3f} ({one.images} images)"
    )
    holds = exponential.r2 > power.r2
    return Claim(f"the singular values of {one.name} decay exponentially", ours, holds, "" if holds else "a power law")


def _close_to_one(one: Spectrum, fraction: float) -> Claim:
    within = one.rank_within(1 + ACCURACY, fraction)
    return Claim(
        f"so the bound of Theorem 2 is close to one at low rank ({one.name})",
        f"within {ACCURACY:.0%} from rank {within} of {one.rank} on, at {fraction:g} beta_max",
        within <= one.rank / 10,
        "read as: at a tenth of the rank; the bound as corrected, for squared loss",
    )


def study(scale: Scale, means: Context) -> Finding:
    """Measure every set, and check the claims."""
    spectra = run(scale, means)
    return Finding(
        spectra, claims(spectra), table(spectra), lambda suffix: draw(spectra, suffix), {"images": IMAGES[scale]}
    )


EXPERIMENT = Experiment(
    "R15",
    "pr_figure_7",
    "How fast the singular values of MNIST and CIFAR-10 decay",
    "PR Fig. 7",
    0,
    study,
    SETS,
)
