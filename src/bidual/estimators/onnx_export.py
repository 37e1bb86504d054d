"""Fitted estimators as ONNX graphs, for runtimes without torch."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import torch
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from bidual.losses import Loss
from bidual.runtime.extras import need
from bidual.runtime.files import check_target, write_atomically


def export(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write the fitted network as ONNX; the input is ``X``, float64 of shape (n, d), or of n images or sequences.

    A regressor's output is ``predictions``, as ``predict`` (with Poisson loss the means). A classifier's are ``scores``
    (as ``decision_function``), ``label`` (an index into the metadata property "classes", a JSON list) and, where the
    estimator has ``predict_proba``, ``probabilities``. Gates compare numbers with zero, so the graph stays in float64.
    """
    check_is_fitted(estimator)
    need("onnx", "onnxscript")
    check_target(path)
    write_atomically(path, _graph(*head_of(estimator), estimator))


def head_of(estimator: Any) -> tuple[nn.Module, list[str]]:
    """The network with what the estimator makes of its outputs, and the names of the results."""
    network = estimator.module_.for_onnx(getattr(estimator, "sample_shape_", (estimator.n_features_in_,)))
    if not is_classifier(estimator):
        shape = getattr(estimator, "target_shape_", () if estimator._flat else (-1,))
        return _Regressor(network, shape, estimator.loss_), ["predictions"]
    names = ["scores", "label", "probabilities"] if estimator.loss_.gives_probabilities else ["scores", "label"]
    return _Classifier(network, estimator.loss_), names


class _Regressor(nn.Module):
    """predict: what a loss makes of the outputs."""

    def __init__(self, network: nn.Module, shape: tuple[int, ...], loss: Loss) -> None:
        super().__init__()
        self.network, self.shape, self.loss = network, shape, loss

    def forward(self, X: Tensor) -> Tensor:
        outputs = self.loss.mean(self.network(X))
        return outputs.reshape(outputs.shape[0], *self.shape)


class _Classifier(nn.Module):
    """decision_function, the index of predict, and predict_proba where a loss says what that is."""

    def __init__(self, network: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        outputs = self.network(X)
        scores = outputs
        if outputs.shape[1] <= 2:
            scores = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
        label = self.loss.likeliest(outputs)
        return (scores, label, self.loss.probabilities(outputs)) if self.loss.gives_probabilities else (scores, label)


def _graph(head: nn.Module, names: list[str], estimator: Any) -> bytes:
    example = estimator._shaped(torch.zeros(3, estimator.n_features_in_, dtype=torch.float64))
    shapes, head = {"X": {0: torch.export.Dim("n")}}, deepcopy(head).cpu()
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            head, (example,), dynamo=True, verbose=False, input_names=["X"], output_names=names, dynamic_shapes=shapes
        )
    if program is None:
        raise RuntimeError("the ONNX exporter returned no graph.")
    model = program.model_proto
    model.producer_name, model.producer_version = "bidual", version("bidual")
    model.metadata_props.add(key="estimator", value=type(estimator).__name__)
    model.metadata_props.add(key="certificate", value=str(estimator.certificate_))
    for key, attribute in (("classes", "classes_"), ("feature_names", "feature_names_in_")):
        if hasattr(estimator, attribute):
            model.metadata_props.add(key=key, value=json.dumps(getattr(estimator, attribute).tolist()))
    return model.SerializeToString()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings, which are about its own imports."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
