"""What the estimators of all families share: parameters, and the program for an activation. No mathematics here."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bidual.architectures import Architecture
from bidual.architectures.base import make_gauge
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.parameters import COUNT, parameter
from bidual.estimators.programs import FixedProgram, NeuronProgram, Program
from bidual.gauges import Gauge
from bidual.losses.datafit import Datafit
from bidual.patterns import sample_gates
from bidual.problems.problem import Problem
from bidual.problems.relu import ReluProblem
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.training.relu.plan import ReluPlan


def _check_penalty(name: str, value: Any) -> None:
    make_gauge(value)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexNetwork(ConvexEstimator):
    """A two-layer network with a choice of activation. Subclasses say what its neurons see."""

    n_gates: int | str = parameter("auto", COUNT, activation="gated_relu")
    gates: ArrayLike | None = parameter(None, activation="gated_relu")
    penalty: str | Gauge = parameter("nuclear", _check_penalty)

    _auto_gates = 200
    _gate_rows: ClassVar[str]  # what a gate has one number for

    @abstractmethod
    def _linear(self, X: Tensor) -> Architecture: ...

    @abstractmethod
    def _gated(self, X: Tensor, gates: Tensor) -> Architecture:
        """The architecture with these gates, which have a row for the hidden bias if there is one."""

    @abstractmethod
    def _relu(self, X: Tensor, neurons: Tensor) -> Architecture: ...

    @abstractmethod
    def _relu_problem(self, X: Tensor, datafit: Datafit) -> ReluProblem: ...

    @abstractmethod
    def _seen(self, X: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The rows that gates are sampled for, without the constant of a hidden bias, and their weights."""

    @abstractmethod
    def _bytes(self, X: Tensor, count: int, n_outputs: int) -> int:
        """About what a program with this many gates, or starts of a search, needs."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.activation == "relu" and self.penalty != "nuclear":
            raise ValueError(f"a relu network has the price of weight decay, penalty='nuclear'; got {self.penalty!r}.")

    @property
    def _biased(self) -> bool:
        return bool(self.hidden_bias)

    def _make_program(self, X: Tensor, datafit: Datafit) -> Program:
        n_outputs = datafit.targets.shape[1]
        if self.activation == "relu":
            n_starts = self.n_starts if isinstance(self.n_starts, str) else int(self.n_starts)
            self._refuse_beyond_memory(X, 0 if isinstance(n_starts, str) else n_starts, n_outputs)
            problem = self._relu_problem(X, datafit)
            plan = ReluPlan(problem.X, self.oracle, n_starts, self._seed(), problem.readout)
            plan.check(problem, str(self.solver), self.max_time)
            return NeuronProgram(problem, lambda neurons: self._relu(X, neurons), plan)
        architecture = self._make_architecture(X, datafit.weight, n_outputs)
        operator = architecture.lift(X, n_outputs)
        return FixedProgram(Problem(operator, datafit, architecture.gauge(), 1.0), architecture)

    def _make_architecture(self, X: Tensor, weight: Tensor | None, n_outputs: int) -> Architecture:
        if self.activation == "linear":
            self._refuse_beyond_memory(X, 1, n_outputs)
            return self._linear(X)
        last = getattr(getattr(self, "architecture_", None), "gates", None)
        if self.warm_start and last is not None and self._same_gates(X, last):
            return self._gated(X, last)
        self._gate_settings = self._current_gate_settings()
        rows, weight = self._seen(X, weight)
        count = self._gate_count() if self.gates is None else np.asarray(self.gates).shape[-1]
        self._refuse_beyond_memory(X, count, n_outputs)
        if self.gates is None:
            return self._gated(X, self._sampled_gates(rows, weight))
        return self._gated(X, self._given_gates(rows))

    def _gate_count(self) -> int:
        return self._auto_gates if isinstance(self.n_gates, str) else int(self.n_gates)

    def _sampled_gates(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed())
        return sample_gates(rows, self._gate_count(), generator, bias=self._biased, weight=weight)

    def _given_gates(self, rows: Tensor) -> Tensor:
        """The user's gates act on rows as they are; they have no threshold, so a bias row of zeros is added."""
        gates = np.asarray(self.gates, dtype=np.float64)
        if gates.ndim != 2 or gates.shape[0] != rows.shape[1] or not gates.shape[1]:
            raise ValueError(
                f"gates must have shape ({self._gate_rows}, P) with {rows.shape[1]} rows, got {gates.shape}."
            )
        if not np.isfinite(gates).all():
            raise ValueError("gates must be finite, got NaN or infinity.")
        if self._biased:
            gates = np.vstack([gates, np.zeros(gates.shape[1])])
        return torch.tensor(gates, device=rows.device)

    def _same_gates(self, X: Tensor, last: Tensor) -> bool:
        """Whether the last fit's gates are what the parameters ask for now."""
        if getattr(self, "_gate_settings", None) != self._current_gate_settings():
            return False
        return len(last) == self._seen(X[:1], None)[0].shape[1] + self._biased

    def _current_gate_settings(self) -> tuple[object, ...]:
        own = None if self.gates is None else np.asarray(self.gates).tobytes()
        return (self.n_gates, self._biased, repr(self.random_state), own, *self._geometry())

    def _geometry(self) -> tuple[object, ...]:
        """What makes gates of one fit useless for another, besides parameters of gates."""
        return ()

    def _refuse_beyond_memory(self, X: Tensor, count: int, n_outputs: int) -> None:
        need, there = self._bytes(X, count, n_outputs), available_bytes(X.device)
        if need > there:
            name = {"relu": "n_starts", "gated_relu": "n_gates"}.get(self.activation)
            size = f"{len(X)} samples with {n_outputs} outputs" + ("" if name is None else f" and {name}={count}")
            raise ValueError(
                f"{size} would need {human_bytes(need)}, and {human_bytes(there)} are free; "
                f"{'' if name is None else f'lower {name}, or '}use fewer samples."
            )


def matrix(value: Any) -> NDArray[np.float64]:
    """A parameter as an array of numbers."""
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
