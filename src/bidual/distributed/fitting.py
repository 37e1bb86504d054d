"""The gated-ReLU estimators, fitted to rows that are spread over ranks, with a checkpoint of the best point."""

import os
import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from torch import Tensor

from bidual.architectures import GatedMLP
from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.distributed.rows import Rows, shared_gates
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.programs import Expected, FixedProgram, WarmStart
from bidual.losses.datafit import Datafit
from bidual.operators.sharded import ShardedOperator, run_on_leader
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem
from bidual.problems.solution import Callback
from bidual.runtime.container import Container, Header
from bidual.runtime.ranks import Ranks

Estimator = ConvexMLPClassifier | ConvexMLPRegressor


class Data(NamedTuple):
    """A rank's samples with the names of their columns; on rank 0 all targets."""

    rows: Rows
    names: list[str]
    targets: NDArray[Any] | None


def fit_shards(
    estimator: Estimator,
    data: Data,
    ranks: Ranks,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
) -> float:
    """Train on the rows of all ranks; afterwards rank 0's estimator is fitted.

    Rank 0 returns the training score, the other ranks NaN. The best certified point is written to ``checkpoint``, and
    training starts from the point of an existing one. ``callback`` takes the place of the estimator's.
    """
    ranks.together(lambda: _check(estimator))
    coded = ranks.together(lambda: None if data.targets is None else estimator._encode_targets(data.targets))
    Y = None if coded is None else torch.tensor(np.ascontiguousarray(coded), device=ranks.device)
    weight = ranks.together(lambda: None if data.targets is None else _weights(estimator, data.targets))
    n_outputs = ranks.broadcast_json(None if Y is None else Y.shape[1])
    count, seed = estimator._gate_count(), estimator._seed()
    gates = shared_gates(data.rows.tiles, count, ranks.broadcast_json(seed), ranks, bias=estimator._biased)
    architecture = GatedMLP(gates, estimator.penalty, estimator._biased)
    estimator.n_features_in_, estimator.feature_names_in_ = len(data.names), np.array(data.names, dtype=object)

    def train(operator: ShardedOperator) -> Expected:
        assert Y is not None
        there = replace(architecture, gates=gates.to(ranks.device))
        there_weight = None if weight is None else torch.tensor(weight, device=ranks.device)
        problem = Problem(operator, estimator._datafit(Y, there_weight), there.gauge(), 1.0)
        return _train(estimator, FixedProgram(problem, there), checkpoint, callback)

    expected = run_on_leader(ranks, data.rows.operator(architecture, n_outputs, ranks.device), train)
    outputs = _outputs(estimator, data.rows, ranks)
    if outputs is None or expected is None or data.targets is None:
        return float("nan")
    expected.check(outputs)
    return _score(estimator, outputs, data.targets)


def _check(estimator: Estimator) -> None:
    estimator._check_parameters()
    if estimator.activation != "gated_relu":
        raise ValueError(
            f"activation {estimator.activation!r} cannot be spread over ranks: only networks with fixed gates can. "
            "Use gated_relu, or one process."
        )
    if estimator.gates is not None:
        raise ValueError("own gates are for fits in one process; leave gates out.")


def _weights(estimator: Estimator, targets: NDArray[Any]) -> NDArray[np.float64] | None:
    """Of all rows, by their classes."""
    weight = estimator._class_weighted(targets, None)
    if weight is not None and not weight.all():
        raise ValueError("rows of a class of weight 0 cannot be left out across ranks; drop them from the data.")
    return weight


def _train(
    estimator: Estimator,
    program: FixedProgram,
    checkpoint: str | os.PathLike[str] | None,
    callback: Callback | None,
) -> Expected:
    """Fit the estimator and return what its network must predict."""
    estimator.beta_max_ = program.beta_max
    estimator.beta_ = estimator._choose_beta(program)
    start, watch = None, None
    if checkpoint is not None:
        about = _configuration(estimator, program.problem.operator.block_shape, program.problem.datafit)
        found, watch = Checkpoint.read(checkpoint, about), CheckpointWriter(checkpoint, about)
        device = program.problem.operator.like.device
        if found is not None:
            start = WarmStart(program.architecture, found.point.to(device), found.dual_point.to(device))
    options = estimator._solver_options()
    callback = estimator.callback if callback is None else callback
    fitted = program.train(estimator.beta_, start=start, callback=callback, watch=watch, **options)
    estimator._store(fitted)
    return fitted.expected()


def _configuration(estimator: Estimator, blocks: tuple[int, ...], datafit: Datafit) -> dict[str, Any]:
    """Identifies the run of a checkpoint; numbers that are sums over ranks are rounded."""
    return {
        "blocks": list(blocks),
        "rows": len(datafit.targets),
        "beta": f"{estimator.beta_:.6g}",
        "loss": datafit.loss.name,
        "class_weight": repr(getattr(estimator, "class_weight", None)),
        "penalty": getattr(estimator.penalty, "name", estimator.penalty),
        "seed": repr(estimator.random_state),
    }


def _outputs(estimator: Estimator, rows: Rows, ranks: Ranks) -> Tensor | None:
    """The outputs for all rows, computed by the rank of each row, on the CPU."""
    module = _broadcast_module(estimator.module_ if ranks.leads else None, ranks)
    with torch.no_grad():
        part = torch.cat([module(X) for X in rows.tiles()])
    return ranks.gather_rows(part, ranks.collect(len(part)))


def _broadcast_module(module: RebuildableModule | None, ranks: Ranks) -> RebuildableModule:
    """Rank 0's network on every rank: its kind and sizes as JSON, its tensors as safetensors."""
    about = ranks.broadcast_json(None if module is None else {"kind": module.kind, "sizes": module.sizes})
    state = {} if module is None else {name: t.cpu().contiguous() for name, t in module.state_dict().items()}
    tensors = safetensors.torch.load(ranks.broadcast_bytes(None if module is None else safetensors.torch.save(state)))
    return NETWORKS[about["kind"]].rebuild(about["sizes"], tensors)


def _score(estimator: Estimator, outputs: Tensor, y: NDArray[Any]) -> float:
    """Accuracy or R^2 on the training rows."""
    if isinstance(estimator, ConvexMLPRegressor):
        return float(r2_score(y, outputs.numpy())) if len(np.unique(y)) > 1 else float("nan")
    chosen = estimator.loss_.likeliest(outputs)
    return float((estimator.classes_[chosen.numpy()] == y).mean())


class _Story(Header):
    configuration: dict[str, Any]
    relative_gap: float


_FILE = Container("checkpoint of a distributed fit", 2, _Story, "delete it")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A point and a dual point to start from. The run that resumes certifies both again, so nothing is trusted.

    Attributes:
        configuration: what the run was about; a checkpoint of another one is refused.
        point, dual_point: of the best certificate so far.
        relative_gap: of that certificate.
    """

    configuration: dict[str, Any]
    point: Tensor
    dual_point: Tensor
    relative_gap: float

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file; a process that is killed meanwhile leaves the old one."""
        story = _Story(configuration=self.configuration, relative_gap=self.relative_gap)
        _FILE.write(path, story, {"point": self.point, "dual_point": self.dual_point})

    @classmethod
    def read(cls, path: str | os.PathLike[str], configuration: dict[str, Any]) -> Self | None:
        """What is in the file, if it is about this configuration; None if there is no file."""
        if not Path(path).exists():
            return None
        with _FILE.reading(path):
            story, tensors = _FILE.read(path)
            found = cls(story.configuration, tensors["point"], tensors["dual_point"], story.relative_gap)
        if found.configuration != configuration:
            raise ValueError(f"the checkpoint {path} is of another run; delete it, or give another name.")
        return found


class CheckpointWriter:
    """Writes the best certificate to a file as it comes: when its gap has halved, or after ``every`` seconds."""

    def __init__(self, path: str | os.PathLike[str], configuration: dict[str, Any], every: float = 5.0) -> None:
        self.path, self.configuration, self.every = path, configuration, every
        self.gap, self.last = inf, -inf

    def __call__(self, certificate: Certificate) -> None:
        gap = certificate.relative_gap
        if gap > self.gap / 2 and time.monotonic() - self.last < self.every:
            return
        Checkpoint(self.configuration, certificate.point, certificate.dual_point, gap).write(self.path)
        self.gap, self.last = gap, time.monotonic()
