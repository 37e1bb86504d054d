"""Model files: one safetensors file with the tensors, and everything else as JSON in its header. Never pickle."""

import dataclasses
import json
import math
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from sklearn.utils.validation import check_is_fitted

from bidual.architectures import ARCHITECTURES, Architecture
from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.estimators import ESTIMATORS, ConvexEstimator, LayerwiseCNNClassifier, layerwise_file
from bidual.io.model_header import Tensors, pack, unpack
from bidual.problems.certificate import Certificate, Scope
from bidual.runtime.files import write_atomically
from bidual.runtime.json_text import one_line, parse_json
from bidual.solvers.driver import Record

if TYPE_CHECKING:
    from bidual.io.tables import TableEncoder

FORMAT = 1
_LAYERWISE = LayerwiseCNNClassifier.__name__
_APART = {"module_", "certificate_", "architecture_", "history_"}  # fitted attributes with a place of their own
_MOST_NUMBERS = 2**26  # of a sample
_FITTED_NAME = re.compile(r"[a-z]\w*_|_flat")


class ModelFileError(ValueError):
    """A file that cannot be loaded as a model."""


class SavedModel(NamedTuple):
    """What a model file holds: the estimator, and how the table it was trained on became its samples, if it was one."""

    estimator: ConvexEstimator | LayerwiseCNNClassifier
    encoder: "TableEncoder | None"


def save(
    estimator: ConvexEstimator | LayerwiseCNNClassifier,
    path: str | os.PathLike[str],
    encoder: "TableEncoder | None" = None,
) -> None:
    """Write a fitted estimator, with its certificate, to a safetensors file; a failure leaves an older file as it was.

    Args:
        estimator: fitted, one of ``ESTIMATORS``, or a layerwise classifier.
        path: the file; its folder must exist.
        encoder: the preprocessing of a table, kept in the same file.
    """
    check_is_fitted(estimator)
    name = type(estimator).__name__
    if ESTIMATORS.get(name, LayerwiseCNNClassifier) is not type(estimator):
        raise ValueError(f"cannot save a {name}; save knows {', '.join([*ESTIMATORS, _LAYERWISE])}.")
    tensors: Tensors = {}
    describe = layerwise_file.describe if isinstance(estimator, LayerwiseCNNClassifier) else _describe
    header = describe(estimator, tensors) | {"encoder": None if encoder is None else encoder.to_json()}
    text = json.dumps({"format": FORMAT, "version": version("bidual"), "estimator": name} | header)
    write_atomically(path, safetensors.torch.save(tensors, metadata={"bidual": text}))


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that was saved, with bit-identical predictions, its certificate and its history."""
    return read(path).estimator


def read(path: str | os.PathLike[str]) -> SavedModel:
    """Like :func:`load`, with the encoder of a model that was trained on a table."""
    header, tensors = _open(Path(path))
    try:
        return SavedModel(_restore(header, tensors), _encoder(header["encoder"]))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, ArithmeticError) as error:
        raise ModelFileError(f"{path} is a damaged model file ({one_line(error)}); save the model again.") from error


def _describe(estimator: ConvexEstimator, tensors: Tensors) -> dict[str, Any]:
    """The header, and the tensors it refers to."""
    module, certificate, architecture = estimator.module_, estimator.certificate_, estimator.architecture_
    for name, tensor in module.state_dict().items():
        pack(tensor, f"network.{name}", tensors)
    pack(certificate.point, "certificate.point", tensors)
    pack(certificate.dual_point, "certificate.dual_point", tensors)
    fields = {f.name: getattr(architecture, f.name) for f in dataclasses.fields(architecture)}  # type: ignore[arg-type]
    fitted = {key: value for key, value in vars(estimator).items() if _FITTED_NAME.fullmatch(key)}
    return {
        "parameters": {k: pack(v, k, tensors) for k, v in estimator.get_params(deep=False).items()},
        "network": {"kind": module.kind, "sizes": module.sizes},
        "architecture": {
            "name": architecture.name,
            "fields": {k: pack(v, f"architecture.{k}", tensors) for k, v in fields.items()},
        },
        "certificate": {k: getattr(certificate, k) for k in ("primal", "dual", "polar", "scale")}
        | {"scope": certificate.scope.name},
        "fitted": {k: pack(v, k, tensors) for k, v in fitted.items() if k not in _APART},
        "history": [dataclasses.astuple(record) for record in estimator.history_],
    }


def _open(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors of a file that is a model of this format."""
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ModelFileError(f"cannot load {path}: {what}; give the path of a model that was saved by bidual.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} is not a model file, or is cut off ({one_line(error)}); save the model again."
        ) from error
    try:
        header = parse_json(metadata["bidual"])
        found = header["format"]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is a safetensors file, but not a model that was saved by bidual.") from error
    if found != FORMAT:
        raise ModelFileError(
            f"{path} has model format {found!r} (written by bidual {header.get('version')}), this is bidual "
            f"{version('bidual')} and reads format {FORMAT}; load it with the version that wrote it."
        )
    return header, tensors


def _restore(header: dict[str, Any], tensors: Tensors) -> ConvexEstimator | LayerwiseCNNClassifier:
    for name in ("n_features_in_", "sample_shape_"):
        _check_sample(unpack(header["fitted"].get(name, 1), tensors))
    if header["estimator"] == _LAYERWISE:
        return layerwise_file.restore(header, _network(header["network"], tensors), tensors)
    if header["estimator"] not in ESTIMATORS:
        raise ValueError(f"unknown estimator {header['estimator']!r}")
    parameters = {name: unpack(value, tensors) for name, value in header["parameters"].items()}
    estimator = ESTIMATORS[header["estimator"]](**parameters)
    if torch.device(estimator.device).type == "cuda" and not torch.cuda.is_available():
        estimator.set_params(device="cpu")
    for name, value in header["fitted"].items():
        if not _FITTED_NAME.fullmatch(name):
            raise ValueError(f"unknown attribute {name!r}")
        setattr(estimator, name, unpack(value, tensors))
    estimator.module_ = _network(header["network"], tensors)
    estimator.architecture_ = _architecture(header["architecture"], tensors)
    estimator.certificate_ = _certificate(header["certificate"], tensors)
    estimator.history_ = tuple(Record(*record) for record in header["history"])
    _check_sizes(estimator)
    return estimator


def _encoder(header: Any) -> "TableEncoder | None":
    if header is None:
        return None
    from bidual.io.tables import TableEncoder  # which needs pandas

    return TableEncoder.from_json(header)


def _network(header: dict[str, Any], tensors: Tensors) -> RebuildableModule:
    state = {key.removeprefix("network."): value for key, value in tensors.items() if key.startswith("network.")}
    kind, sizes = header["kind"], {name: _whole(size) for name, size in header["sizes"].items()}
    if kind not in NETWORKS:
        raise ValueError(f"unknown network {kind!r}")
    if any(isinstance(size, list) and len(size) > len(state) for size in sizes.values()):
        raise ValueError(f"the header announces more layers than its {len(state)} tensors can be")
    with torch.device("meta"):  # takes no memory, whatever the sizes
        expected = NETWORKS[kind](**sizes).state_dict()
    if {k: (v.shape, v.dtype) for k, v in expected.items()} != {k: (v.shape, v.dtype) for k, v in state.items()}:
        raise ValueError(f"the tensors do not have the shapes of a network of sizes {sizes}")
    return NETWORKS[kind].rebuild(sizes, state)


def _check_sample(size: Any) -> None:
    """A header alone must not make a sample of any size, which loading then predicts."""
    sides = size if isinstance(size, tuple) else (size,)
    if not all(isinstance(side, int) and side >= 0 for side in sides) or math.prod(sides) > _MOST_NUMBERS:
        raise ValueError(f"samples of {str(size)[:60]} numbers cannot be")


def _whole(size: Any) -> int | list[int]:
    return [int(part) for part in size] if isinstance(size, list) else int(size)


def _architecture(header: dict[str, Any], tensors: Tensors) -> Architecture:
    if header["name"] not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {header['name']!r}")
    return ARCHITECTURES[header["name"]](**{k: unpack(v, tensors) for k, v in header["fields"].items()})


def _certificate(header: dict[str, Any], tensors: Tensors) -> Certificate:
    bounds = {name: float(header[name]) for name in ("primal", "dual", "polar", "scale")}
    point, dual_point = tensors["certificate.point"], tensors["certificate.dual_point"]
    return Certificate(**bounds, point=point, dual_point=dual_point, scope=Scope[header["scope"]])


def _check_sizes(estimator: ConvexEstimator) -> None:
    """The parts must fit together, so that predictions and warm starts cannot fail later."""
    module, certificate = estimator.module_, estimator.certificate_
    n_outputs, n_classes = module.sizes["n_outputs"], len(getattr(estimator, "classes_", ()))
    outputs = {estimator.architecture_.n_outputs(certificate.point), certificate.dual_point.shape[1], n_outputs}
    if len(outputs) > 1:
        raise ValueError("certificate, architecture and network are of different sizes")
    estimator.architecture_.check_samples(getattr(estimator, "sample_shape_", (estimator.n_features_in_,)))
    estimator._try_network()
    if n_classes and n_outputs != n_classes and (n_classes, n_outputs) != (2, 1):
        raise ValueError(f"{n_classes} classes do not match a network with {n_outputs} outputs")
