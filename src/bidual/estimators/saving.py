"""Model files: one safetensors file with the tensors, and everything else as JSON in its header.

Nothing in a header can name code to run.
"""

import math
import os
import re
import warnings
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bidual.architectures import ARCHITECTURES, Architecture
from bidual.architectures.modules import NETWORKS, RebuildableModule
from bidual.gauges import GAUGES
from bidual.losses import LOSSES, Loss
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem
from bidual.problems.proof_file import NoProofError
from bidual.problems.solution import Record
from bidual.runtime.container import Container, Header, Tensors, is_ours
from bidual.runtime.registry import PARTS, Registry, settings_of
from bidual.solvers import SOLVERS

if TYPE_CHECKING:
    from bidual.io.tables import TableEncoder

_MOST_NUMBERS = 2**26  # of a sample
_FITTED_NAME = re.compile(r"[a-z]\w*_|_flat")
_ROOMS: dict[str, Registry[Any]] = {room.what: room for room in (LOSSES, GAUGES, SOLVERS, ARCHITECTURES, PARTS)}


class _Network(Header):
    kind: str
    sizes: dict[str, int | list[int]]


class _Model(Header):
    estimator: str
    parameters: dict[str, Any]
    network: _Network
    fitted: dict[str, Any]
    encoder: list[dict[str, Any]] | None


_FILE = Container("model", 4, _Model, "save the model again")


class SavedEstimator(BaseEstimator):
    """An estimator that model files can hold, by the name of its class: parameters, network and fitted attributes."""

    _not_saved: ClassVar[dict[str, Any]] = {}  # parameters that are no part of a model, and what they are instead
    _certified: Problem | None = None  # of the last fit in this process
    certificate_: Certificate
    module_: Any

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted network with its certificate to a safetensors file; see :func:`bidual.load`."""
        save(self, path)

    def save_proof(self, path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> None:
        """Write a proof file of the last fit, which ``bidual check`` proves again in exact arithmetic.

        The samples of a fit are not part of a model file, so that only the fitted estimator itself can do this, in the
        process that fitted it.

        Args:
            path: the file; its folder must exist.
            data: a second file for samples, targets and weights; the proof then holds its SHA-256 only.

        Raises:
            NoProofError: for certificates of a kind that proof files do not describe yet, by name.
        """
        check_is_fitted(self)
        if not hasattr(self, "certificate_"):
            raise NoProofError(f"{type(self).__name__} has certificates of its stages, which have no proof files yet.")
        if self._certified is None:
            raise ValueError(
                f"this {type(self).__name__} was loaded or copied, without the samples of its fit; save the proof in "
                "the process that fits it, or fit it again."
            )
        self.certificate_.save_proof(path, self._certified, data)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the samples."""
        return {name: value for name, value in super().__getstate__().items() if name != "_certified"}

    def _check_loaded(self) -> None:
        """Raise if the parts that came from a file do not fit together, so that predictions cannot fail later."""
        _check_certified(self)


ESTIMATORS: Registry[SavedEstimator] = Registry(
    SavedEstimator, "estimator", "__name__", lambda cls: issubclass(cls, (ClassifierMixin, RegressorMixin))
)


class SavedModel(NamedTuple):
    """What a model file holds: the estimator, and how the table it was trained on became its samples, if it was one."""

    estimator: Any
    encoder: "TableEncoder | None"


def save(estimator: SavedEstimator, path: str | os.PathLike[str], encoder: "TableEncoder | None" = None) -> None:
    """Write a fitted estimator, with its certificate, to a safetensors file; a failure leaves the old file.

    Args:
        estimator: fitted; one of this package, or of a class that extends one.
        path: the file; its folder must exist.
        encoder: the preprocessing of a table, kept in the same file.
    """
    check_is_fitted(estimator)
    name, module = ESTIMATORS.name_of(estimator), estimator.module_
    tensors: Tensors = {}
    parameters = estimator.get_params(deep=False) | estimator._not_saved
    fitted = {key: value for key, value in vars(estimator).items() if _FITTED_NAME.fullmatch(key) and key != "module_"}
    header = _Model(
        estimator=name,
        parameters={key: pack(value, key, tensors) for key, value in parameters.items()},
        network=_Network(kind=NETWORKS.name_of(module), sizes=module.sizes),
        fitted={key: pack(value, key, tensors) for key, value in fitted.items()},
        encoder=None if encoder is None else encoder.to_json(),
    )
    _FILE.write(path, header, tensors | {f"network.{key}": value for key, value in module.state_dict().items()})


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that was saved, with bit-identical predictions, its certificate and its history."""
    return read(path).estimator


def read(path: str | os.PathLike[str]) -> SavedModel:
    """Like :func:`load`, with the encoder of a model that was trained on a table."""
    header, tensors = _FILE.read(path)
    with _FILE.reading(path):
        return SavedModel(_restored(header, tensors), _encoder(header.encoder))


def read_saved(path: Path) -> SavedModel | None:
    """The model with its encoder, if this package saved the file; None for any other file."""
    return read(path) if is_ours(path) else None


def _restored(header: _Model, tensors: Tensors) -> SavedEstimator:
    for name in ("n_features_in_", "sample_shape_"):
        _check_sample(unpack(header.fitted.get(name, 1), tensors))
    family: Any = ESTIMATORS.find(header.estimator)
    estimator = family(**{name: unpack(value, tensors) for name, value in header.parameters.items()})
    if torch.device(estimator.device).type == "cuda" and not torch.cuda.is_available():
        estimator.set_params(device="cpu")
    for name, value in header.fitted.items():
        if not _FITTED_NAME.fullmatch(name):
            raise ValueError(f"unknown attribute {name!r}")
        setattr(estimator, name, unpack(value, tensors))
    estimator.module_ = _network(header.network, tensors)
    estimator._check_loaded()
    return estimator


def _encoder(header: list[dict[str, Any]] | None) -> "TableEncoder | None":
    if header is None:
        return None
    from bidual.io.tables import TableEncoder  # which needs pandas

    return TableEncoder.from_json(header)


def _network(header: _Network, tensors: Tensors) -> RebuildableModule:
    state = {key.removeprefix("network."): value for key, value in tensors.items() if key.startswith("network.")}
    family: Any = NETWORKS.find(header.kind)
    if any(isinstance(size, list) and len(size) > len(state) for size in header.sizes.values()):
        raise ValueError(f"the header announces more layers than its {len(state)} tensors can be")
    with torch.device("meta"):  # takes no memory, whatever the sizes
        expected = family(**header.sizes).state_dict()
    if {k: (v.shape, v.dtype) for k, v in expected.items()} != {k: (v.shape, v.dtype) for k, v in state.items()}:
        raise ValueError(f"the tensors do not have the shapes of a network of sizes {header.sizes}")
    return family.rebuild(header.sizes, state).eval()


def _check_sample(size: Any) -> None:
    """A header alone must not make a sample of any size, which loading then predicts."""
    sides = size if isinstance(size, tuple) else (size,)
    if not all(isinstance(side, int) and side >= 0 for side in sides) or math.prod(sides) > _MOST_NUMBERS:
        raise ValueError(f"samples of {str(size)[:60]} numbers cannot be")


def _check_certified(model: Any) -> None:
    """Whether network, architecture, certificate and history of a certified estimator belong together."""
    family, certificate, history = model.architecture_, model.certificate_, model.history_
    right = isinstance(family, Architecture) and isinstance(certificate, Certificate) and isinstance(model.loss_, Loss)
    if not right or not all(isinstance(record, Record) for record in history):
        raise ValueError("its architecture, loss, certificate or history is something else")
    n_outputs, n_classes = model.module_.sizes["n_outputs"], len(getattr(model, "classes_", ()))
    if len({family.n_outputs(certificate.point), certificate.dual_point.shape[1], n_outputs}) > 1:
        raise ValueError("certificate, architecture and network are of different sizes")
    family.check_samples(getattr(model, "sample_shape_", (model.n_features_in_,)))
    _try_network(model)
    if n_classes and n_outputs != n_classes and (n_classes, n_outputs) != (2, 1):
        raise ValueError(f"{n_classes} classes do not match a network with {n_outputs} outputs")


def _try_network(model: Any) -> None:
    """Predict a sample of zeros; a network for other samples fails."""
    found, names = model.n_features_in_, getattr(model, "feature_names_in_", None)
    if names is not None and len(names) != found:
        raise ValueError(f"there are {len(names)} names of features, and n_features_in_={found}")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            model.predict(np.zeros((1, found)))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"the network does not take samples of n_features_in_={found} numbers") from error


def pack(value: Any, name: str, tensors: Tensors) -> Any:
    """A JSON value for ``value``; arrays with more than one axis go to ``tensors`` under ``name``.

    Losses, gauges, solvers, architectures and parts become the name of their class and their settings.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):
        return pack(value.item(), name, tensors)
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    for what, room in _ROOMS.items():
        if isinstance(value, room.base):
            settings = settings_of(value).items()
            return {what: room.name_of(value), "settings": {k: pack(v, f"{name}.{k}", tensors) for k, v in settings}}
    if isinstance(value, Mapping) and all(isinstance(key, (bool, int, float, str, np.generic)) for key in value):
        # JSON has only texts as keys
        return {"pairs": [[pack(part, name, tensors) for part in pair] for pair in value.items()]}
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, np.ndarray)) for item in value):
        items = [pack(item, f"{name}.{k}", tensors) for k, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        return _pack_array(np.asarray(value), name, tensors)
    raise ValueError(
        f"cannot save {name}={value!r}: a model file holds numbers, strings, arrays, losses, gauges and solvers, but "
        f"no functions, splitters and other objects; call set_params({name}=None) first, which changes no prediction."
    )


def unpack(value: Any, tensors: Tensors) -> Any:
    """What :func:`pack` was given."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "array" in value:
        return tensors[value["array"]].numpy()
    if "pairs" in value:
        return {key: unpack(item, tensors) for key, item in value["pairs"]}
    if "tuple" in value:
        return tuple(unpack(item, tensors) for item in value["tuple"])
    for what, room in _ROOMS.items():
        if what in value:
            return room.make(value[what], {k: unpack(v, tensors) for k, v in value["settings"].items()})
    if np.dtype(value["dtype"]).kind not in "biufUO":
        raise ValueError(f"a vector of type {value['dtype']!r} is not known")
    return np.array(value["values"], dtype=value["dtype"])


def _pack_array(array: NDArray[Any], name: str, tensors: Tensors) -> dict[str, Any]:
    if array.dtype.kind not in "biufUO" or (array.dtype.kind in "UO" and array.ndim != 1):
        raise ValueError(f"cannot save {name}: its values are of type {array.dtype}; use numbers or strings.")
    if array.ndim == 1:
        if strange := [item for item in array.tolist() if not isinstance(item, (bool, int, float, str))]:
            raise ValueError(f"cannot save {name}: it holds {strange[0]!r}; use numbers or strings.")
        return {"values": array.tolist(), "dtype": {"U": "str", "O": "object"}.get(array.dtype.kind, array.dtype.name)}
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    tensors[name] = torch.tensor(native)
    return {"array": name}
