"""The loss whose best constant is a quantile."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss


@dataclass(frozen=True)
class Quantile(Loss):
    r"""The pinball loss l(p, y) = sum_k max(q (y_k - p_k), (1 - q) (p_k - y_k)) of Koenker and Bassett (1978).

    l*(v) = <v, y> on the box -q <= v <= 1 - q. Predictions estimate the ``quantile`` q of y given x; with 0.5, the
    median, it is half of the absolute loss.
    """

    quantile: float = 0.5
    name = "quantile"
    translates = True

    def __post_init__(self) -> None:
        if not isinstance(self.quantile, Real) or not 0 < self.quantile < 1:
            raise ValueError(f"quantile must be a number between 0 and 1, got {self.quantile!r}; 0.5 is the median.")
        object.__setattr__(self, "quantile", float(self.quantile))  # a float32 would round all that it meets

    def encode(self, codes: NDArray[np.integer], n_outputs: int) -> NDArray[np.float64]:
        raise ValueError(f"{self.name} loss is for numbers, not for classes; use 'squared' or 'log_loss' for labels.")

    @property
    def slope(self) -> float:  # type: ignore[override]
        return max(self.quantile, 1 - self.quantile)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        R = P - Y
        return torch.maximum((1 - self.quantile) * R, -self.quantile * R).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        R = P - Y
        return (1 - self.quantile) * (R > 0).to(R.dtype) - self.quantile * (R < 0).to(R.dtype)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        slack = 1 + 4 * torch.finfo(V.dtype).eps  # V / w * w need not be V
        inside = (-self.quantile * slack <= V) & ((1 - self.quantile) * slack >= V)
        return torch.where(inside, V * Y, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return 2 * (V * Y).abs().sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        R = P - Y
        above, below = (R - step * (1 - self.quantile)).clamp(min=0), (-R - step * self.quantile).clamp(min=0)
        return Y + above - below

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V.clamp(-self.quantile, 1 - self.quantile)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.zeros_like(P)

    def epigraph(self, Y: Tensor) -> Epigraph:
        # a >= q (y - f) and a >= (1 - q) (f - y)
        n, c = Y.shape
        eye, q = torch.eye(c, dtype=Y.dtype, device=Y.device).expand(n, c, c), self.quantile
        rows = (
            ConeRows("nonnegative", q * eye, eye, -q * Y),
            ConeRows("nonnegative", (q - 1) * eye, eye, (1 - q) * Y),
        )
        return Epigraph(0.0, torch.zeros_like(Y), Y.new_zeros(c), torch.ones_like(Y), rows)
