"""`bidual certify`: how far a trained network, made anywhere, is from the best one."""

import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bidual.cli import training as t
from bidual.runtime.console import print_result, working
from bidual.runtime.extras import need
from bidual.runtime.files import check_target, write_atomically

if TYPE_CHECKING:
    from torch import nn

    from bidual.cli.samples import Samples
    from bidual.estimators.saving import SavedModel


def certify(
    model: Annotated[Path, t.argument("MODEL", "A two-layer ReLU network: .safetensors, .onnx or .pt2.")],
    data: t.Data,
    target: t.Target,
    beta: Annotated[
        float | None,
        t.option(
            "The weight decay: beta/2 times the sum of squares, beside the sum of losses. A model of "
            "`bidual fit` has its own."
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, t.option("Instead of --beta, what torch's optimiser was given, beside the loss of --reduction.")
    ] = None,
    reduction: Annotated[str | None, t.option("Of the loss that torch minimised: mean (default) or sum.")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw, whose weight decay stands for no beta.")] = "sgd",
    decayed_bias: Annotated[
        str | None,
        t.option("Which biases are decayed: all, none, hidden or output (all beside --weight-decay, else hidden)."),
    ] = None,
    head: Annotated[
        str | None,
        t.option(
            "Two layers of a larger .safetensors file, like fc1,fc2; the columns of the table are what the first sees."
        ),
    ] = None,
    loss: Annotated[str, typer.Option(help="auto (the model's own, or squared), log_loss, or a name.")] = "auto",
    task: t.Task = "auto",
    standardise: Annotated[
        bool,
        typer.Option("--standardise", help="Standardise numbers and one-hot encode the rest, as `bidual fit` does."),
    ] = False,
    tol: t.Tol = 1e-4,
    max_time: t.MaxTime = None,
    out: Annotated[Path | None, t.option("Where to write a better network, if one is found.")] = None,
    report: Annotated[Path | None, t.option("A page to write (.html): the verdict with a picture.")] = None,
    save_proof: t.Proof = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Bound how much better than a given network any other of its kind could be, and say it in words.

    The columns of the table are the network's features, in their order and as they are.
    """
    if out is not None:
        check_target(out, model, data)
    if report is not None:
        _check_report(report, model, data, *([] if out is None else [out]))
    if save_proof is not None:
        check_target(save_proof, model, data, *(path for path in (out, report) if path is not None))
    from bidual.cli.samples import load_samples
    from bidual.estimators.certifying import certify as certify_network
    from bidual.estimators.certifying import from_estimator
    from bidual.estimators.certifying.decay import Penalty
    from bidual.estimators.saving import read_saved
    from bidual.io.foreign import from_file

    saved = read_saved(model)
    if saved is not None and head is not None:
        raise ValueError(f"--head is for files of other packages, and {model} is a model of this one; leave it out.")
    beta = _beta(beta, weight_decay, saved, model)
    decay = Penalty(beta, weight_decay, reduction, optimizer, _decayed(decayed_bias))
    weights = from_file(model, _head(head)) if saved is None else from_estimator(saved.estimator)
    samples = load_samples(data, target, task, loss, weights, saved, standardise)
    began = time.perf_counter()
    with working("bounding the optimum", quiet):
        proof = None if saved is None else saved.estimator.certificate_
        found = certify_network(
            weights,
            samples.X,
            samples.Y,
            loss=samples.loss,
            **asdict(decay),
            sample_weight=samples.weight,
            max_time=max_time,
            tol=tol,
            proof=proof,
        )
    result = {
        "task": samples.task,
        "loss": samples.loss.name,
        "rows": len(samples.Y),
        "features": weights.n_features,
        "neurons": weights.n_neurons,
        "outputs": weights.n_outputs,
        "beta": found.beta,
        "weight_decay": weight_decay,
        "unit": found.unit,
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "relative_gap": found.relative_gap,
        "status": found.status,
        "better_objective": found.better_objective,
        "constant_objective": found.constant_objective,
        "kind": found.kind,
        "how": found.how,
        "verdict": found.verdict,
        "seconds": time.perf_counter() - began,
        "out": _write(found.better, out),
    }
    if report is not None:
        _write_report(result, report)
    if save_proof is not None:
        found.save_proof(save_proof)
    print_result(result, _facts(result, samples, found.better is not None), json, quiet)


def _beta(beta: float | None, weight_decay: float | None, saved: "SavedModel | None", model: Path) -> float | None:
    """The beta that was given, or that of the model where no weight decay was."""
    if beta is not None or weight_decay is not None:
        return beta
    if saved is None:
        raise ValueError(f"{model} does not say its weight decay; give --beta or --weight-decay.")
    return float(saved.estimator.beta_)


def _decayed(given: str | None) -> bool | str | None:
    if given not in (None, "all", "none", "hidden", "output"):
        raise ValueError(f"--decayed-bias must be all, none, hidden or output, got {given!r}.")
    return given == "all" if given in ("all", "none") else given


def _head(given: str | None) -> tuple[str, ...] | None:
    names = None if given is None else tuple(name.strip() for name in given.split(","))
    if names is not None and (len(names) != 2 or not all(names)):
        raise ValueError(f"--head must name two layers, such as fc1,fc2, got {given!r}.")
    return names


def _write(better: "nn.Module | None", out: Path | None) -> str | None:
    """Writes the better network as plain tensors, which `bidual certify` can read again; None if there is none."""
    if better is None or out is None:
        return None
    import safetensors.torch

    state = {name: tensor.detach().cpu().contiguous() for name, tensor in better.state_dict().items()}
    write_atomically(out, safetensors.torch.save(state))
    return str(out)


def _check_report(path: Path, *others: Path) -> None:
    from bidual.reporting import check_page

    need("matplotlib", "jinja2", "markdown_it")
    check_page(path, *others)


def _write_report(result: dict[str, Any], path: Path) -> None:
    from bidual.reporting.results import judged_report

    judged_report(SimpleNamespace(**result), None).save(path)


def _facts(result: dict[str, Any], samples: "Samples", improved: bool) -> dict[str, str]:
    scale = (
        "" if result["unit"] == 1 else f", as a sum over samples; {result['unit']:.6g} times that in the training loop"
    )
    facts = {
        "verdict": result["verdict"],
        "task": f"{result['task']} ({samples.reason})",
        "data": f"{result['rows']} rows; {samples.features}",
        "network": f"{result['features']} features, {result['neurons']} neurons, {result['outputs']} outputs",
        "problem": f"{result['loss']} loss{samples.weighting}, beta {result['beta']:.4g}",
        "objective": f"{result['objective']:.6g}{scale}",
        "lower bound": f"{result['lower_bound']:.6g}, of every such network",
        "gap": f"{100 * result['relative_gap']:.3g} % at most ({result['status']})",
    }
    if improved:
        facts["better"] = f"a network with objective {result['better_objective']:.6g} was found"
    if result["out"] is not None:
        facts["saved"] = result["out"]
    return facts | {"seconds": f"{result['seconds']:.2f}"}
