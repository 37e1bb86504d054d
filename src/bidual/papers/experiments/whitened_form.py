"""The soft-thresholded SVD of CP Theorem 2 and SGD on whitened data, certified: what R5 (CP Fig. 2, 6) measures."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments.whitened_descent import SGD, Coordinates, Pixels, Point, Samples
from bidual.papers.experiments.whitened_images import Setting, Whitened
from bidual.papers.methods.demeaned_form import closed_form_demeaned
from bidual.polar import bound_near
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import ReluProblem
from bidual.training.relu.closed_form import ClosedForm, closed_form

CLOSE = 1e-3  # SGD is there when its objective is relatively that close to the optimum


@dataclass(frozen=True)
class Settings:
    """What is run on each kind of data.

    Attributes:
        name: of the configuration, which the results carry.
        timed: runs of SGD in pixels, with test accuracy: these are what the closed form is faster than.
        others: runs in the coordinates of the samples, where the same iterates cost much less.
        beta: weight decay.
        per_class: training images of each class.
    """

    name: str
    timed: tuple[SGD, ...]
    others: tuple[SGD, ...]
    beta: float = 1.0
    per_class: int = 300


@dataclass(frozen=True)
class Run:
    """One run of SGD and the coordinates in which it was timed."""

    sgd: SGD
    coordinates: str
    points: tuple[Point, ...]

    @property
    def lowest(self) -> float:
        """The least objective that was recorded."""
        return min((point.objective for point in self.points if math.isfinite(point.objective)), default=math.inf)

    def first_below(self, objective: float) -> Point | None:
        """The first record at most so high, or None."""
        return next((point for point in self.points if point.objective <= objective), None)


@dataclass(frozen=True)
class Thresholded:
    r"""CP (16) as printed: V = sum_i (sigma_i - beta)_+ a_i b_i^T from the SVD of X^T Y.

    Attributes:
        linear: 1/2 |X V - Y|^2 + beta |V|_*, what V costs as a linear network.
        relu: what the ReLU network of its factors costs, u_i = a_i and w_i = (sigma_i - beta)_+ b_i.
        accuracy: of X V on the test samples.
        seconds: for V alone, as CP times it: X^T Y, its SVD, and the threshold. Whitening is not in it.
    """

    linear: float
    relu: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """One kind of data.

    Attributes:
        configuration: which settings ran.
        setting, n, defect: which data, how many, and |X X^T - I|_F.
        theorem_2: sum_k beta sigma_k - beta^2 / 2 over the singular values of Y: the optimum where X X^T = I.
        svd: the paper's formula, evaluated.
        optimum, dual, gap: of the closed form's network and its certificate over all activation patterns.
        neurons, accuracy: of that network.
        form_seconds: for the closed form with its checks of X X^T and the bound of the polar, without whitening.
        certificate_seconds: for judging it.
        runs: of SGD.
    """

    configuration: str
    setting: Setting
    n: int
    defect: float
    theorem_2: float
    svd: Thresholded
    optimum: float
    dual: float
    gap: float
    neurons: int
    accuracy: float
    form_seconds: float
    certificate_seconds: float
    runs: tuple[Run, ...]

    def above(self, value: float) -> float:
        """How far a value is above the certified optimum, relatively."""
        return value / self.optimum - 1

    def reached(self, run: Run) -> Point | None:
        """Where a run first is within 1e-3."""
        return run.first_below(self.optimum * (1 + CLOSE))

    @property
    def sgd_seconds(self) -> float:
        """When the first of the timed runs is within 1e-3, infinity if none is."""
        points = [self.reached(run) for run in self.runs if run.coordinates == "pixels"]
        return min((point.seconds for point in points if point is not None), default=math.inf)

    @property
    def times_faster(self) -> tuple[float, float]:
        """That over the seconds of the SVD alone, and over those of the closed form with checks and certificate."""
        return self.sgd_seconds / self.svd.seconds, self.sgd_seconds / (self.form_seconds + self.certificate_seconds)

    @property
    def best(self) -> Run | None:
        """The run with the least objective."""
        return min(self.runs, key=lambda run: run.lowest, default=None)


def measure(data: Sequence[Whitened], settings: Settings) -> list[Row]:
    """The closed form and every run of SGD on each kind of data; labels are one-hot, the loss is squared."""
    return [_row(samples, settings) for samples in data]


def _row(data: Whitened, settings: Settings) -> Row:
    problem = ReluProblem(data.X, Datafit(Squared(), data.one_hot), settings.beta)
    began = time.process_time()
    form = (closed_form_demeaned if data.setting is Setting.LITERAL else closed_form)(problem)
    formed = time.process_time()
    if not form.applies:
        raise ValueError(f"the closed form does not apply to {data.setting.name} data: {form.reason}")
    certificate = certified(problem, form)
    judged = time.process_time()
    return Row(
        settings.name,
        data.setting,
        len(data.X),
        data.defect,
        theorem_2(data.one_hot, settings.beta),
        thresholded(data, settings.beta),
        certificate.primal,
        certificate.dual,
        certificate.relative_gap,
        len(form.neurons),
        data.accuracy((data.X_test @ form.neurons.T).clamp(min=0) @ form.weights),
        formed - began,
        judged - formed,
        _runs(data, settings),
    )


def certified(problem: ReluProblem, form: ClosedForm) -> Certificate:
    """The formula's network and dual point before the one judge, over all activation patterns."""
    Z = (torch.linalg.vector_norm(form.neurons, dim=1, keepdim=True) * form.weights)[:, None]
    polar = bound_near(problem.X, form.dual_point, form.polar)
    return judge(problem.restricted_to(form.neurons), Z, form.dual_point, polar, Scope.ALL_PATTERNS)


def theorem_2(Y: Float[Tensor, "n c"], beta: float) -> float:
    """The optimum that CP (16) has on X X^T = I: the singular values of Y, soft-thresholded."""
    sigma = torch.linalg.svdvals(Y)
    return float(torch.where(sigma > beta, beta * sigma - beta**2 / 2, sigma**2 / 2).sum())


def thresholded(data: Whitened, beta: float) -> Thresholded:
    """CP (16), and what becomes of it."""
    X, Y, began = data.X, data.one_hot, time.process_time()
    left, sigma, right = torch.linalg.svd(X.T @ Y, full_matrices=False)
    kept = (sigma - beta).clamp(min=0)
    seconds = time.process_time() - began
    W, before, price = kept[:, None] * right, X @ left, beta * float(kept.sum())
    linear, relu = (0.5 * float((H @ W - Y).square().sum()) + price for H in (before, before.clamp(min=0)))
    return Thresholded(linear, relu, data.accuracy(data.X_test @ left @ W), seconds)


def _runs(data: Whitened, settings: Settings) -> tuple[Run, ...]:
    Y, beta, found = data.one_hot, settings.beta, []
    if settings.timed:
        pixels = Pixels(data.X, data.X_test)
        found += [_run(sgd, pixels, Y, beta, data) for sgd in settings.timed]
    if settings.others:
        samples = Samples.of(data.X, data.X_test)
        found += [_run(sgd, samples, Y, beta, data) for sgd in settings.others]
    return tuple(found)


def _run(sgd: SGD, where: Coordinates, Y: Tensor, beta: float, data: Whitened) -> Run:
    score = data.accuracy if isinstance(where, Pixels) else None
    return Run(sgd, where.name, sgd.run(where, Y, beta, score).points)
