"""Races of the penalty form (PR eq. 11) and of networks on labelled images, as in PR Fig. 5: one panel for a set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bidual.architectures import GatedParallel
from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.gauges import Group
from bidual.io.datasets import ImageData
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments.image_race import (
    Contender,
    Measured,
    NetworkModel,
    PenaltyModel,
    Race,
    Samples,
    Watch,
    stepper,
)
from bidual.papers.experiments.race_results import TITLES, Certified, Config, Curve, Decoded, Panel, Point
from bidual.papers.methods.decoding import real_sub_networks, violation
from bidual.papers.methods.path_norm import path_norm_of
from bidual.papers.reproduction.context import silent
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.runtime.threads import one_thread
from bidual.solvers.plan import solve_auto

RATES: Mapping[str, Mapping[str, float]] = {  # PR A.1
    "cifar-10": dict(zip(TITLES, (5e-7, 5e-3, 2e-5, 2e-3, 3e-1, 1.0), strict=True)),
    "fashion-mnist": dict(zip(TITLES, (1e-5, 2e-1, 2e-3, 1e-2, 3.0, 1.0), strict=True)),
}
CENTRES = {"sgd": 0.1, "adam": 1e-3, "adagrad": 2e-3, "adadelta": 1.0, "decay": 0.1}
GRID = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)  # times the centre of every method
_SGD_ON_CONVEX = ("cifar-10",)  # elsewhere Adam (PR Fig. 5)
_MARKS = 10
_ROWS = 1000
_TOL, _LIMIT = 1e-2, 120.0  # relative gap and seconds of the exact solution


def race_on(
    data: ImageData, config: Config, device: str = "cpu", seed: int = 0, say: Callable[[str], None] = silent
) -> Panel:
    """All methods on one data set, one after another, from the same seed."""
    if config.clock == "processor" and torch.device(device).type != "cpu":
        raise ValueError(f"the processor's clock does not see device {device!r}; use a Config with clock='wall'.")
    if not config.validation and data.name not in RATES:
        raise ValueError(f"PR has no learning rates for {data.name!r}; tune them with validation > 0.")
    train, validation, test = split(data, config, device, seed)
    limit: AbstractContextManager[None] = one_thread() if config.clock == "processor" else nullcontext()
    with limit:
        entry = _Entry(data.name, config, train, validation, test, seed, say)
        found = [entry.race(method) for method in TITLES]
        curves, models = zip(*found, strict=True)
        decoded = decode(models[0], test) if config.decoded else None
        certified = entry.certify(curves[0].rate) if config.certified else None
    return Panel(data.name, len(train), train.X.shape[1], data.note, curves, decoded, certified, len(test))


def split(data: ImageData, config: Config, device: str = "cpu", seed: int = 0) -> tuple[Samples, Samples, Samples]:
    """Random training and validation images and all test images, every channel with the training part's mean 0 and
    deviation 1."""
    there = len(data.train_images)
    n = there - config.validation if config.images is None else config.images
    if n < 1 or n + config.validation > there:
        wanted = f"{n} training and {config.validation} validation images"
        raise ValueError(f"{data.name} has {there} training images, fewer than {wanted}; use fewer.")
    order = np.random.default_rng(seed).permutation(there)
    chosen, kept = order[:n], order[n : n + config.validation]
    pixels = data.train_images[chosen].astype(np.float32)
    mean = pixels.mean((0, 2, 3), keepdims=True, dtype=np.float64)
    scale = pixels.std((0, 2, 3), keepdims=True, dtype=np.float64)

    def samples(images: np.ndarray, labels: np.ndarray) -> Samples:
        flat = ((images - mean) / np.where(scale > 0, scale, 1)).astype(np.float32)
        where = torch.device(device)
        return Samples.of(
            torch.from_numpy(flat).flatten(1).to(where), torch.from_numpy(labels).to(where), len(data.classes)
        )

    parts = [(data.train_images[rows], data.train_labels[rows]) for rows in (chosen, kept)]
    train, validation, test = (samples(*part) for part in (*parts, (data.test_images, data.test_labels)))
    return train, validation, test


@dataclass(frozen=True, eq=False)
class _Entry:
    """Everything that the methods share on one data set."""

    name: str
    config: Config
    train: Samples
    validation: Samples
    test: Samples
    seed: int
    say: Callable[[str], None] = field(default=silent)

    def race(self, method: str) -> tuple[Curve, Contender]:
        tried = tuple(self._tuned(method))
        rate = max(tried, key=lambda pair: pair[1])[0] if tried else RATES[self.name][method]
        began = self._watch.read()
        contender = self.contender(method)
        spent = self._watch.read() - began

        def measure(seconds: float, epochs: float) -> Point:
            return Point(seconds, epochs, contender.objective(), contender.accuracy(self.test))

        marks = np.geomspace(self.config.seconds / 50, self.config.seconds, _MARKS).tolist()
        points = [measure(0.0, 0.0), *self._run(contender, method, rate, marks, measure, spent)]
        last = points[-1]
        self.say(f"{self.name}, {method}, rate {rate:.2g}: {last}, validation {tried}")
        return Curve(method, self._optimiser(method), rate, tried, tuple(points)), contender

    def certify(self, rate: float) -> Certified:
        """Solve the gated model on the first training images, and descend on (11) there for half of the seconds."""
        part = Samples(self.train.X[: self.config.certified], self.train.Y[: self.config.certified])
        one = replace(self, train=part)
        model, began = one.contender("convex"), self._watch.read()
        assert isinstance(model, PenaltyModel)
        family, n = GatedParallel(model.cells), len(part)
        operator = family.lift(part.X.double(), part.Y.shape[1])
        problem = Problem(operator, Datafit(Squared(), part.Y.double()), family.gauge(), n * model.beta)
        solution = solve_auto(problem, Limits(_TOL, max_time=_LIMIT))
        bounds, seconds = solution.certificate, self._watch.read() - began

        def measure(*_: float) -> tuple[float, float]:
            return model.objective(), model.accuracy(self.test)

        found = one._run(model, "convex", rate, [self.config.seconds / 2], measure)[-1]
        model.put(solution.Z)
        return Certified(n, bounds.dual / n, bounds.primal / n, *measure(), seconds, *found)

    def contender(self, method: str) -> Contender:
        """SubNetworkGates and starts are drawn from the seed alone, so every method and learning rate has the same."""
        c, generator = self.config, torch.Generator().manual_seed(self.seed)
        if method == "convex":
            cells = SubNetworkGates.sample(self.train.X.shape[1], c.n_networks, c.width, generator)
            return PenaltyModel.start(cells, self.train, c.beta, c.lam)
        return NetworkModel.start(self.train, c.n_networks, c.width, c.beta, generator, method == "decay")

    def _tuned(self, method: str) -> Iterator[tuple[float, float]]:
        """Learning rates and the accuracies they reach on the validation images; nothing without these."""
        if not len(self.validation):
            return
        contender, marks = self.contender(method), [self.config.tuning_seconds]
        centre = CENTRES.get(method, 1.0)
        if isinstance(contender, PenaltyModel):
            centre = contender.natural_rate(self._optimiser(method))
        start = [parameter.detach().clone() for parameter in contender.parameters]
        for factor in GRID:
            with torch.no_grad():
                for parameter, value in zip(contender.parameters, start, strict=True):
                    parameter.copy_(value)
            found = self._run(contender, method, factor * centre, marks, lambda *_: contender.accuracy(self.validation))
            yield factor * centre, found[-1]

    def _run(
        self,
        contender: Contender,
        method: str,
        rate: float,
        marks: Sequence[float],
        measure: Callable[[float, float], Measured],
        spent: float = 0.0,
    ) -> list[Measured]:
        race = Race(self.config.batch_size, self._watch, self.config.max_epochs)
        optimiser = stepper(self._optimiser(method), contender.parameters, rate, self.config.momentum)
        return race.run(contender, optimiser, marks, measure, torch.Generator().manual_seed(self.seed), spent)

    def _optimiser(self, method: str) -> str:
        if method == "convex":
            return "sgd" if self.name in _SGD_ON_CONVEX else "adam"
        return "sgd" if method == "decay" else method

    @property
    def _watch(self) -> Watch:
        return Watch(self.config.clock, self.train.X.device)


def decode(model: Contender, test: Samples) -> Decoded:
    """z - z' as a ReLU network, by the closed-form split into the cones of its cells."""
    assert isinstance(model, PenaltyModel)
    cells, Z = model.cells.to(torch.zeros(0, dtype=torch.float64)), model.lifted.cpu()
    X, Y = model.data.X.cpu().double(), model.data.Y.cpu()
    module = real_sub_networks(cells, X, Z, max_time=0.0).decode(cells.width)
    outputs, price = _outputs(module, X), float(path_norm_of(module).detach())
    return Decoded(
        violation(cells, X, Z).share,
        model.accuracy(model.data),
        model.accuracy(test),
        _hits(outputs, Y),
        _hits(_outputs(module, test.X.cpu()), test.Y.cpu()),
        float(Squared().value(outputs, Y.double()).mean()) + model.beta * price,
        price / max(Group().value(Z), 1e-300),
    )


@torch.no_grad()
def _outputs(module: torch.nn.Module, X: Tensor) -> Tensor:
    return torch.cat([module(x) for x in X.split(_ROWS)])


def _hits(outputs: Tensor, Y: Tensor) -> float:
    return float((outputs.argmax(1) == Y.argmax(1)).double().mean())
