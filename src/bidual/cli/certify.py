"""`bidual certify`: how far a trained network, made anywhere, is from the best one."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bidual.cli import training as t
from bidual.runtime.console import print_facts, print_json, working
from bidual.runtime.files import check_target, write_atomically

if TYPE_CHECKING:
    from torch import nn

    from bidual.cli.samples import Samples
    from bidual.estimators.certifying import NetworkCertificate
    from bidual.estimators.saving import SavedModel
    from bidual.io.foreign import TwoLayerWeights


def certify(
    model: Annotated[Path, t.argument("MODEL", "A two-layer ReLU network: .safetensors, .onnx or .pt2.")],
    data: t.Data,
    target: t.Target,
    beta: Annotated[
        float | None,
        t.option(
            "The weight decay: beta/2 times the sum of squares, beside the sum of losses. A model written by "
            "`bidual fit` knows its own."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="auto (the model's own, or squared), log_loss, or the name of a loss.")
    ] = "auto",
    task: t.Task = "auto",
    standardise: Annotated[
        bool,
        typer.Option("--standardise", help="Standardise numbers and one-hot encode the rest, as `bidual fit` does."),
    ] = False,
    tol: t.Tol = 1e-4,
    max_time: t.MaxTime = None,
    out: Annotated[Path | None, t.option("Where to write a better network, if one is found.")] = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Bound how much better than a given network any other of its kind could be.

    The columns of the table are the network's features, in their order and as they are.
    """
    if out is not None:
        check_target(out, model, data)
    from bidual.cli.samples import load_samples
    from bidual.estimators.certifying import certify as certify_network
    from bidual.estimators.certifying import from_estimator
    from bidual.estimators.saving import read_saved
    from bidual.io.foreign import from_file

    saved = read_saved(model)
    weights = from_file(model) if saved is None else from_estimator(saved.estimator)
    beta = _beta(beta, saved, model)
    samples = load_samples(data, target, task, loss, weights, saved, standardise)
    began = time.perf_counter()
    with working("bounding the optimum", quiet):
        found = certify_network(weights, samples.X, samples.Y, beta, samples.loss, max_time=max_time, tol=tol)
    report = _Report(weights, samples, beta, found, time.perf_counter() - began, _write(found.better, out))
    if json:
        print_json(report.payload())
    elif not quiet:
        print_facts(report.facts())


def _beta(beta: float | None, saved: "SavedModel | None", model: Path) -> float:
    if beta is None and saved is None:
        raise ValueError(f"{model} does not say its weight decay; give --beta.")
    value = beta if beta is not None else saved.estimator.beta_  # type: ignore[union-attr]
    if not 0 < value < float("inf"):
        raise ValueError(f"beta must be positive and finite, got {value:g}.")
    return float(value)


def _write(better: "nn.Module | None", out: Path | None) -> Path | None:
    """The better network as plain tensors, which `bidual certify` can read again; None if nothing was written."""
    if better is None or out is None:
        return None
    import safetensors.torch

    state = {name: tensor.detach().cpu().contiguous() for name, tensor in better.state_dict().items()}
    write_atomically(out, safetensors.torch.save(state))
    return out


@dataclass(frozen=True)
class _Report:
    weights: "TwoLayerWeights"
    samples: "Samples"
    beta: float
    found: "NetworkCertificate"
    seconds: float
    out: Path | None

    def payload(self) -> dict[str, Any]:
        weights, samples, found = self.weights, self.samples, self.found
        return {
            "task": samples.task,
            "loss": samples.loss.name,
            "rows": len(samples.Y),
            "features": weights.n_features,
            "neurons": weights.n_neurons,
            "outputs": weights.n_outputs,
            "beta": self.beta,
            "objective": found.objective,
            "lower_bound": found.lower_bound,
            "relative_gap": found.relative_gap,
            "status": found.status,
            "better_objective": found.better_objective,
            "seconds": self.seconds,
            "out": None if self.out is None else str(self.out),
        }

    def facts(self) -> dict[str, str]:
        weights, samples, found = self.weights, self.samples, self.found
        facts = {
            "task": f"{samples.task} ({samples.reason})",
            "data": f"{len(samples.Y)} rows; {samples.features}",
            "network": f"{weights.n_features} features, {weights.n_neurons} neurons, {weights.n_outputs} outputs",
            "problem": f"{samples.loss.name} loss, beta {self.beta:.4g}",
            "objective": f"{found.objective:.6g}",
            "lower bound": f"{found.lower_bound:.6g}, of every such network",
            "gap": f"{100 * found.relative_gap:.3g} % at most ({found.status})",
        }
        if found.better is not None:
            facts["better"] = f"a network with objective {found.better_objective:.6g} was found"
        if self.out is not None:
            facts["saved"] = str(self.out)
        return facts | {"seconds": f"{self.seconds:.2f}"}
