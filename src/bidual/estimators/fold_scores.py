"""The networks of the folds of a cross-validation, and how they are judged: all at once, or one fold after another."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.base import ConvexEstimator, Samples
from bidual.estimators.programs import NeuronProgram
from bidual.estimators.scoring import HeldOut
from bidual.losses.datafit import Datafit
from bidual.runtime.crossovers import FOLDS
from bidual.runtime.jobs import Task
from bidual.types import Matrix

Scores = NDArray[np.float64]  # (folds, betas)
_GAIN = 1e-3  # of cv_tol: at what gain of a step, relative to the objective, the networks of folds rest


class Fold(NamedTuple):
    """Which samples a fold trains on and holds out, and what judges its networks.

    None is accuracy, or for regressors the negative loss.
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    judge: HeldOut | None

    def score(self, network: ConvexEstimator, samples: Samples) -> float:
        if self.judge is not None:
            return self.judge.score(network)
        held_out = samples.rows(torch.as_tensor(self.test, device=samples.X.device)).weighted()
        return (_negative_loss if network._numeric_targets else _accuracy)(network, held_out)


def fold_tasks(
    estimator: ConvexEstimator,
    samples: Samples,
    betas: NDArray[np.float64],
    beta_max: float,
    folds: Sequence[Fold],
    together: bool,
) -> list[Task]:
    """What to compute for the scores of all folds, in parts that do not depend on how many run at a time.

    Folds are trained together in batches that a cache can hold; those that are not have a beta_max of their own.
    """
    if not together:
        return [Task(_path_scores, (estimator, samples, betas / beta_max, fold)) for fold in folds]
    size = max(1, FOLDS.numbers // max(samples.X.numel(), 1))
    parts = [folds[first : first + size] for first in range(0, len(folds), size)]
    return [Task(_scores_together, (estimator, samples, betas, part)) for part in parts]


def _scores_together(
    estimator: ConvexEstimator, samples: Samples, betas: NDArray[np.float64], folds: Sequence[Fold]
) -> Scores:
    """Some folds along one path; samples that a fold does not train on have a share of zero."""
    counts = np.stack([np.bincount(fold.train, minlength=len(samples.Y)) for fold in folds])
    shares = torch.as_tensor(counts, device=samples.X.device)
    shares = shares if samples.weight is None else shares[:, samples.weight > 0]
    order, scores = np.argsort(-betas, kind="stable"), np.empty((len(folds), len(betas)))
    falling, gain = [float(beta) for beta in betas[order]], _GAIN * estimator.cv_tol
    program = estimator._program(samples)
    assert isinstance(program, NeuronProgram)
    paths = program.fold_modules(shares, falling, gain, estimator.max_time)
    for index, modules in zip(order, paths, strict=True):
        networks = [_network(estimator, module, betas[index]) for module in modules]
        scores[:, index] = [fold.score(each, samples) for fold, each in zip(folds, networks, strict=True)]
    return scores


def _network(estimator: ConvexEstimator, module: RebuildableModule, beta: float) -> ConvexEstimator:
    network = copy.copy(estimator)
    network.module_, network.n_neurons_, network.beta_ = module, module.n_neurons, float(beta)
    return network


def _path_scores(estimator: ConvexEstimator, samples: Samples, fractions: NDArray[np.float64], fold: Fold) -> Scores:
    """One fold: a path on its training part, to fractions of its own beta_max."""
    program = estimator._program(samples.rows(torch.as_tensor(fold.train, device=samples.X.device)))
    options = estimator._solver_options()
    limits = replace(options.pop("limits"), tol=max(estimator.cv_tol, estimator.tol))
    fits = program.path(list(fractions * (program.beta_max or 1.0)), limits, prove=False, **options)
    networks = [copy.copy(estimator) for _ in fits]
    for network, fit in zip(networks, fits, strict=True):
        network._become(fit)
        network.beta_ = fit.solution.problem.beta
    return np.array([[fold.score(network, samples) for network in networks]])


def _negative_loss(network: ConvexEstimator, held_out: Samples) -> float:
    """Per sample; of predictions per token, per token."""
    datafit, outputs = _outputs(network, held_out)
    weight = datafit.weights[:, 0]
    assert datafit.shift is not None
    return -float((weight * datafit.loss.value(outputs - datafit.shift, datafit.targets)).sum() / weight.sum())


def _accuracy(network: ConvexEstimator, held_out: Samples) -> float:
    """Weighted."""
    datafit, outputs = _outputs(network, held_out)
    weight, loss = datafit.weights[:, 0], datafit.loss
    right = loss.likeliest(outputs) == loss.likeliest(held_out.Y.reshape(outputs.shape))
    return float((weight * right).sum() / weight.sum())


def _outputs(network: ConvexEstimator, samples: Samples) -> tuple[Datafit, Matrix]:
    """The data term, and the outputs of the network in the shape of its targets."""
    datafit = network._datafit(samples.Y, samples.weight)
    with torch.no_grad():
        return datafit, network.module_(samples.X).reshape(datafit.targets.shape)
