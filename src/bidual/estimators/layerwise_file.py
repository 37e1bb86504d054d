"""A layerwise classifier as the header and tensors of a model file."""

import dataclasses
from typing import Any

import numpy as np
import torch

from bidual.architectures.modules import LayerwiseNetwork, RebuildableModule
from bidual.estimators import LayerwiseCNNClassifier
from bidual.io.model_header import Tensors, pack, unpack
from bidual.training.layerwise.certificates import StageCertificate
from bidual.training.layerwise.stage_descent import EpochRecord

_FITTED = ("classes_", "sample_shape_", "n_features_in_", "learning_rates_", "interrupted_")


def describe(estimator: LayerwiseCNNClassifier, tensors: Tensors) -> dict[str, Any]:
    """The header, and the tensors it refers to. Where checkpoints lie is not part of a model."""
    module = estimator.module_
    for name, tensor in module.state_dict().items():
        pack(tensor, f"network.{name}", tensors)
    parameters = estimator.get_params(deep=False) | {"checkpoint": None, "resume": False}
    return {
        "parameters": {k: pack(v, k, tensors) for k, v in parameters.items()},
        "network": {"kind": module.kind, "sizes": module.sizes},
        "fitted": {k: pack(getattr(estimator, k), k, tensors) for k in _FITTED},
        "certificates": [dataclasses.astuple(certificate) for certificate in estimator.certificates_],
        "history": [list(record) for record in estimator.history_],
    }


def restore(header: dict[str, Any], module: RebuildableModule, tensors: Tensors) -> LayerwiseCNNClassifier:
    """The estimator with the network that was saved."""
    estimator = LayerwiseCNNClassifier(**{k: unpack(v, tensors) for k, v in header["parameters"].items()})
    if torch.device(estimator.device).type == "cuda" and not torch.cuda.is_available():
        estimator.set_params(device="cpu")
    for name in _FITTED:
        setattr(estimator, name, unpack(header["fitted"][name], tensors))
    if not isinstance(module, LayerwiseNetwork):
        raise ValueError(f"a network of kind {module.kind!r} is not layerwise")
    estimator.module_ = module.eval()
    estimator.certificates_ = tuple(StageCertificate(*numbers) for numbers in header["certificates"])
    estimator.history_ = tuple(EpochRecord(*record) for record in header["history"])
    outputs = estimator.decision_function(np.zeros((1, *estimator.sample_shape_), np.float32))
    if outputs.shape[1] != len(estimator.classes_):
        raise ValueError(f"{len(estimator.classes_)} classes do not match a network with {outputs.shape[1]} outputs")
    return estimator
