"""Deep convolutional classifiers, trained stage by stage, as a scikit-learn estimator."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted
from torch import Tensor

from bidual.architectures.modules.layerwise import LayerwiseNetwork
from bidual.estimators import layerwise_checks as checks
from bidual.estimators.class_weights import ClassWeight, class_weights
from bidual.estimators.inputs import answers_in_kind, as_plain_array, as_targets, refuse_sparse
from bidual.estimators.parameters import FLAG, check_display, check_parameters, parameter, restored_if_refused, whole
from bidual.estimators.saving import SavedEstimator
from bidual.estimators.targets import classes_and_codes
from bidual.losses import Softmax
from bidual.runtime.ranks import ALONE, Ranks
from bidual.runtime.user_warnings import warn_user
from bidual.training.layerwise.certificates import StageCertificate, certify_stage
from bidual.training.layerwise.checkpoint import Checkpoint, EpochRecord, Settings, check_folder
from bidual.training.layerwise.progress import epoch_progress
from bidual.training.layerwise.trainer import LayerwiseResult, LayerwiseTrainer

_AT_ONCE = 500  # images that are predicted together


@dataclass(kw_only=True, eq=False, repr=False)
class LayerwiseCNNClassifier(ClassifierMixin, SavedEstimator):
    """A deep gated CNN whose every stage is a convex program, trained greedily: BM 4.2 and C.2, PR Fig. 6.

    A stage is a two-layer gated-ReLU CNN (convolution, gates, average pooling to a grid, linear layer) with softmax
    cross-entropy and weight decay, in its factored form with ``factors`` filters for each of ``n_gates`` random gates.
    Once trained it is frozen, its ``factors * n_gates`` channels are standardised and become the images of the next
    stage. With ``units`` above 1 a stage is a three-layer path-regularised parallel network of that many units in
    each of ``n_gates`` sub-networks. Training is SGD with momentum; the defaults are the paper's.

    Args:
        stages: how many.
        n_gates: P, random gates per stage.
        factors: m, filters per gate.
        units: m_1; 1 is a two-layer stage.
        downsample: the stages, counted from 1, that begin with invertible downsampling: 2 x 2 pixels become channels.
        kernel_size, pooling: sides of the filters, and of the grid that is pooled to.
        epochs, batch_size, momentum: of SGD, for every stage.
        class_weight: None, "balanced" or a dict with positive weights of classes, which their losses are multiplied
            with in training and in certificates; see :class:`bidual.ConvexMLPClassifier`.
        weight_decay: beside the mean loss; in the scaling of a sum over n samples beta is n times this.
        learning_rate: one for all stages, one each, or "auto": the best of a few over the first batches.
        drop, drop_every: the learning rate is multiplied by ``drop`` every so many epochs.
        crop, flip: augmentation by random shifts of up to so many pixels ("auto" is an eighth of the side) and mirror
            images.
        certificate_samples: random images that every stage is certified on; 0 for no certificates.
        image_shape: (channels, height, width) of flat samples, one of them -1 if it should follow from the others; not
            needed where X has these axes, or (n, h, w).
        checkpoint: a folder, written after every epoch.
        resume: go on with the checkpoint in that folder, to the same result bit for bit.
        random_state: of gates, starts, order and augmentation.
        verbose: show epochs and the time left.
        device: "cpu" or a GPU like "cuda", where convolutions run in mixed precision.

    Attributes:
        module_: the network, an ordinary ``torch.nn.Module`` on images as they were given to fit.
        certificates_: one per stage, over the images that ``certificate_samples`` says and the gates of that stage.
        history_: loss, accuracy and seconds of every epoch.
        learning_rates_: of every stage.
        interrupted_: whether training ended early, by Ctrl-C or a stage that diverged; the network is then the best so
            far.
        classes_, sample_shape_, n_features_in_: of the training data.
    """

    stages: int = parameter(3, whole(1, 100))
    n_gates: int = parameter(256, whole(1, 10**6))
    factors: int = parameter(1, whole(1, 10**6))
    units: int = parameter(1, whole(1, 10**6))
    downsample: Sequence[int] = (2,)
    kernel_size: int = parameter(3, checks.kernel)
    pooling: int = parameter(2, whole(1))
    epochs: int = parameter(50, whole(1))
    batch_size: int = parameter(128, whole(1))
    momentum: float = parameter(0.9, checks.MOMENTUM)
    weight_decay: float = parameter(5e-4, checks.weight_decay)
    class_weight: ClassWeight = parameter(None, checks.class_weight)
    learning_rate: float | Sequence[float] | str = "auto"
    drop: float = parameter(0.2, checks.DROP)
    drop_every: int = parameter(15, whole(1))
    crop: int | str = parameter("auto", checks.CROP)
    flip: bool = parameter(True, FLAG)
    certificate_samples: int = parameter(500, whole(0))
    image_shape: Sequence[int] | None = parameter(None, checks.SHAPE)
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    random_state: int | np.random.RandomState | None = 0
    verbose: int | bool = parameter(0, check_display)
    device: str = parameter("cpu", checks.device)
    sample_shape_: tuple[int, ...] = field(init=False)
    n_features_in_: int = field(init=False)

    _not_saved: ClassVar[dict[str, Any]] = {"checkpoint": None, "resume": False}

    def fit(self, X: ArrayLike, y: ArrayLike, ranks: Ranks = ALONE) -> Self:
        """Train all stages on images X (n, channels, h, w), (n, h, w) or flat ones, with labels y.

        With the ``ranks`` of :func:`bidual.distributed.torchrun_ranks` all call this with the same data and share
        every batch. All are then fitted alike; rank 0 alone writes checkpoints, shows progress and certifies.
        """
        with restored_if_refused(self):
            return self._fit(X, y, ranks)

    def _fit(self, X: ArrayLike, y: ArrayLike, ranks: Ranks) -> Self:
        images, labels, weights = ranks.together(lambda: self._checked(X, y, ranks))
        device = torch.device(self.device) if ranks.size == 1 or self.device == "cpu" else ranks.device
        settings = self._settings()
        settings = replace(settings, seed=ranks.broadcast_json(settings.seed))  # rank 0's, should it be a random one
        trainer = LayerwiseTrainer(
            settings, images, labels, len(self.classes_), device, ranks=ranks, class_weights=weights
        )
        self._store(self._run(trainer), ranks)
        self.certificates_ = self._certificates(images, labels, weights) if ranks.leads else ()
        return self

    def _checked(self, X: ArrayLike, y: ArrayLike, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor | None]:
        """Images, labels and weights of classes, once nothing is wrong with them or the parameters."""
        self._check_parameters(ranks)
        images = self._images(X, reset=True)
        self.classes_, codes = classes_and_codes(as_targets(y))
        check_consistent_length(images, codes)
        self._check_maps()
        checks.check_memory(self, self.sample_shape_)
        weights = None
        if self.class_weight is not None:
            weights = torch.tensor(class_weights(self.class_weight, self.classes_, codes))
        return images, torch.tensor(codes, dtype=torch.long), weights

    def _check_parameters(self, ranks: Ranks = ALONE) -> None:
        """Refuse what makes no sense whatever the data are."""
        check_parameters(self)
        checks.check_together(self)
        checks.check_ranks(self, ranks)

    @answers_in_kind
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of every image."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    @answers_in_kind
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities (n, n_classes)."""
        return Softmax().probabilities(torch.from_numpy(self._scores(X)).double()).numpy()

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of :meth:`predict_proba`, -inf where that is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @answers_in_kind
    def decision_function(self, X: ArrayLike) -> NDArray[np.float32]:
        """The outputs before the softmax (n, n_classes); for two classes the second minus the first, shape (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: ArrayLike) -> NDArray[np.float32]:
        check_is_fitted(self)
        return self._outputs(self.module_, self._images(X, reset=False))

    def staged_predict(self, X: ArrayLike) -> Iterator[NDArray[Any]]:
        """The predictions of the networks of one stage, two stages, and so on."""
        check_is_fitted(self)
        images = self._images(X, reset=False)
        for count in range(1, len(self.module_.stages) + 1):
            yield self.classes_[self._outputs(self.module_.upto(count), images).argmax(1)]

    def _check_loaded(self) -> None:
        if not isinstance(self.module_, LayerwiseNetwork):
            raise ValueError(f"a network of kind {self.module_.kind!r} is not layerwise")
        right = all(isinstance(certificate, StageCertificate) for certificate in self.certificates_)
        if not right or not all(isinstance(record, EpochRecord) for record in self.history_):
            raise ValueError("its certificates or history are something else")
        found = self._outputs(self.module_, torch.zeros(1, *self.sample_shape_)).shape[1]
        if found != len(self.classes_):
            raise ValueError(f"{len(self.classes_)} classes do not match a network with {found} outputs")

    def _run(self, trainer: LayerwiseTrainer) -> LayerwiseResult:
        ranks = trainer.ranks
        with epoch_progress(self.verbose and ranks.leads, trainer.settings) as on_epoch:
            trainer = trainer.watched(on_epoch, None if self.checkpoint is None else Path(self.checkpoint))
            last = ranks.together(lambda: self._last(trainer) if ranks.leads else None)
            data = ranks.broadcast_bytes(None if last is None else last.to_bytes())
            return trainer.run(Checkpoint.from_bytes(data) if data else None)

    def _last(self, trainer: LayerwiseTrainer) -> Checkpoint | None:
        """What to go on with, if anything; checkpoints are rank 0's."""
        if self.checkpoint is None:
            return None
        last = Checkpoint.read(self.checkpoint) if self.resume else None
        if last is not None:
            last.check(trainer.configuration, self.checkpoint)
        check_folder(self.checkpoint, self.resume)
        return last

    def _store(self, done: LayerwiseResult, ranks: Ranks) -> None:
        self.module_ = done.network
        self.history_, self.learning_rates_ = done.history, done.rates
        self.interrupted_ = bool(done.reason)
        if done.reason and ranks.leads:
            last = done.history[-1]
            warn_user(
                f"training ended early, after epoch {last.epoch} of stage {last.stage} ({done.reason.rstrip('.')}): "
                f"the network has {len(done.network.stages)} stages.",
                ConvergenceWarning,
            )

    def _certificates(
        self, images: Tensor, labels: Tensor, weights: Tensor | None = None
    ) -> tuple[StageCertificate, ...]:
        """Of the stages, as far as memory and the user's patience go: the network is there already."""
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        some, found = order[: self.certificate_samples], []
        try:
            for count in range(1, len(self.module_.stages) + 1 if len(some) else 1):
                network = self.module_.upto(count)
                found.append(certify_stage(network, images[some], labels[some], self.weight_decay, weights))
        except (KeyboardInterrupt, MemoryError, RuntimeError) as error:
            reason = str(error) or type(error).__name__
            warn_user(f"only {len(found)} stages were certified: {reason}", ConvergenceWarning)
        return tuple(found)

    def _settings(self) -> Settings:
        rate: Any = self.learning_rate
        rates = None if isinstance(rate, str) else tuple(np.broadcast_to(rate, (self.stages,)).tolist())
        return Settings(
            gates=int(self.n_gates),
            factors=int(self.factors),
            units=int(self.units),
            downsample=tuple(stage + 1 in self.downsample for stage in range(self.stages)),
            kernel=int(self.kernel_size),
            grid=int(self.pooling),
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
            momentum=float(self.momentum),
            weight_decay=float(self.weight_decay),
            rates=rates,
            drop=float(self.drop),
            drop_every=int(self.drop_every),
            crop=min(self.sample_shape_[1:]) // 8 if isinstance(self.crop, str) else int(self.crop),
            flip=bool(self.flip),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
        )

    def _network_samples(self, X: ArrayLike) -> Tensor:
        return self._images(X, reset=False)

    def _images(self, X: ArrayLike, reset: bool) -> Tensor:
        """Images (n, channels, h, w) of the dtype they came in."""
        X = as_plain_array(X)
        refuse_sparse(X, "images")
        _check_feature_names(self, X, reset=reset)
        try:
            array = np.asarray(X)
        except ValueError as error:
            raise ValueError("all images must have one shape, which they do not; pad, cut or resize them.") from error
        if array.dtype.kind not in "biufcO" or array.ndim < 2:
            raise ValueError(
                f"images must be numbers of shape (n, channels, h, w), got {array.dtype} of shape {array.shape}. "
                "Reshape your data."
            )
        if array.ndim == 2 and not reset:
            _check_n_features(self, array, reset=False)
        array = check_array(array.reshape(len(array), prod(array.shape[1:]))).reshape(array.shape)
        flat = not reset and array.shape[1:] == (self.n_features_in_,)
        shape = self.sample_shape_ if flat else self._shape_of(array.shape[1:])
        if reset:
            self.sample_shape_, self.n_features_in_ = shape, prod(shape)
        elif shape != self.sample_shape_:
            raise ValueError(f"the network was trained on images of shape {self.sample_shape_}, got {shape}.")
        native = array.dtype.newbyteorder("=")
        return torch.tensor(np.ascontiguousarray(array.reshape(len(array), *shape), dtype=native))

    def _shape_of(self, found: tuple[int, ...]) -> tuple[int, ...]:
        if self.image_shape is not None:
            given, size = tuple(int(side) for side in self.image_shape), prod(found)
            known = prod(side for side in given if side != -1)
            if size % known if -1 in given else size != known:
                raise ValueError(f"image_shape={given} does not fit images of shape {found}.")
            return tuple(size // known if side == -1 else side for side in given)
        if len(found) not in (2, 3):
            raise ValueError(
                f"images must have shape (channels, height, width) or (height, width), got {found}; set image_shape."
            )
        return found if len(found) == 3 else (1, *found)

    def _check_maps(self) -> None:
        """Whether every downsampling finds an even map, and pooling one that is large enough."""
        height, width = self.sample_shape_[1:]
        for stage in sorted(set(self.downsample)):
            if height % 2 or width % 2:
                raise ValueError(
                    f"stage {stage} cannot downsample a {height} x {width} map, which is odd; leave it out of "
                    f"downsample, or pad the images."
                )
            height, width = height // 2, width // 2
        if min(height, width) < self.pooling:
            raise ValueError(
                f"the last map is {height} x {width}, smaller than pooling={self.pooling}; downsample less often."
            )

    def _outputs(self, module: LayerwiseNetwork, images: Tensor) -> NDArray[np.float32]:
        device = next(module.parameters()).device
        with torch.no_grad():
            return torch.cat([module(some.to(device)).cpu() for some in images.split(_AT_ONCE)]).numpy()
