"""What a layer of a torch module sees: the part before it, run in evaluation mode and without gradients."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.estimators.certifying.targets import as_numbers
from bidual.io.foreign.modules import evaluating
from bidual.io.foreign.normalisation import check_modes
from bidual.runtime.json_text import one_line

_AT_ONCE = 256  # samples


def layer_of(model: nn.Module, name: str) -> nn.Module:
    """The part of this name, or a refusal that suggests the nearest."""
    parts = dict(model.named_modules())
    if name in parts and name:
        return parts[name]
    known = [other for other in parts if other]
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known[:8]) or 'none'}."
    raise ValueError(f"{type(model).__name__} has no layer {name!r}; {hint}")


@dataclass(frozen=True, eq=False)
class Frozen:
    """A module up to one of its layers.

    Attributes:
        model: the module; every part is put back into its own mode after a run.
        name: of the layer.
    """

    model: nn.Module
    name: str

    def features(self, X: ArrayLike) -> tuple[Tensor, Tensor]:
        """What the layer sees at X, and what the module answers; both in float64, from the model's own precision."""
        check_modes(self.model)
        samples = as_inputs(self.model, X)
        with evaluating(self.model), torch.no_grad():
            parts = [self._run(part) for part in samples.split(_AT_ONCE)]
            self._check_steady(samples[: _AT_ONCE // 2], parts[0][0])
        seen, answers = (torch.cat(several) for several in zip(*parts, strict=True))
        return seen, answers

    def _run(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []
        hook = layer_of(self.model, self.name).register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
        try:
            answers = self.model(samples)
        except Exception as error:  # the module is the caller's code
            raise ValueError(
                f"{type(self.model).__name__} cannot be run on X of shape (n, *{tuple(samples.shape[1:])}) "
                f"({one_line(error)}); pass the samples that it was trained on."
            ) from error
        finally:
            hook.remove()
        if not isinstance(answers, Tensor):
            raise ValueError(f"{type(self.model).__name__} must return one tensor, got a {type(answers).__name__}.")
        if len(seen) != 1:
            raise ValueError(
                f"{type(self.model).__name__} must run {self.name!r} once for a batch of samples, and runs it "
                f"{len(seen)} times; name a layer that is run once."
            )
        if not len(seen[0]) == len(answers) == len(samples):
            raise ValueError(
                f"{self.name!r} sees {len(seen[0])} rows for {len(samples)} samples, and there are {len(answers)} "
                "answers; all must be as many."
            )
        return seen[0].to("cpu", torch.float64), answers.to("cpu", torch.float64)

    def _check_steady(self, samples: Tensor, before: Tensor) -> None:
        """The same features again, for fewer samples at once."""
        again = self._run(samples)[0]
        size = float(before.abs().max()) if before.numel() else 0.0
        allowed = torch.finfo(next(self.model.parameters()).dtype).eps ** 0.5 * size
        if not bool(((again - before[: len(again)]).abs() <= allowed).all()):
            raise ValueError(
                f"what {self.name!r} sees changes from run to run in evaluation mode too, by chance or with the other "
                "samples of a batch; make the layers before it repeatable."
            )


def as_inputs(model: nn.Module, X: ArrayLike) -> Tensor:
    """Samples of any shape on the device of a module; real numbers in its precision, whole ones as they are."""
    like = next(model.parameters())
    given = X if isinstance(X, Tensor) else torch.from_numpy(np.ascontiguousarray(_array(X)))
    if not given.ndim or not len(given):
        raise ValueError(f"X must have one sample per row, got shape {tuple(given.shape)}.")
    if not given.is_floating_point():
        return given.detach().to(like.device)
    if not bool(torch.isfinite(given).all()):
        raise ValueError("X must be finite, got NaN or infinity; drop or impute those samples.")
    return given.detach().to(like.device, like.dtype)


def _array(X: ArrayLike) -> Any:
    array = as_numbers("X", X, None)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"X must be an array of numbers, got one of {array.dtype}.")
    return array
