"""Dual points of a data term as numbers without constraints."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.types import Matrix

_HALVINGS = 50
_WIDTH = 1.0  # of the Moreau envelope of a loss with kinks, in units of predictions


@dataclass(frozen=True, eq=False)
class DualCoordinates:
    r"""V(f) = grad F(f) for predictions f: every V in the interior of the domain of F*, balanced where there is an
    intercept. A loss with kinks is replaced by its Moreau envelope, whose gradients are in the same domain.
    """

    datafit: Datafit

    def _slope(self, P: Matrix) -> Matrix:
        loss, Y = self.datafit.loss, self.datafit.targets
        if loss.smooth:
            return loss._grad(P, Y)
        return (P - loss._prox(P, Y, P.new_tensor(_WIDTH), P)) / _WIDTH

    def shifted(self, f: Matrix) -> Matrix:
        """f + b with the intercept b that balances V; f itself where there is none."""
        if not self.datafit.intercept:
            return f
        return f + (self.datafit.offset(f) if self.datafit.loss.smooth else self._middle(f))

    def _middle(self, f: Matrix) -> Matrix:
        """The b where the summed slopes of the envelope change sign, by bisection: their derivatives may vanish."""
        reach = 1 + _WIDTH + (self.datafit.targets - f).abs().amax(0)
        low, high = -2 * reach, 2 * reach
        for _ in range(_HALVINGS):
            b = 0.5 * (low + high)
            rising = (self.datafit.weights * self._slope(f + b)).sum(0) > 0
            low, high = torch.where(rising, low, b), torch.where(rising, b, high)
        return 0.5 * (low + high)

    @property
    def speed(self) -> float:
        """About how fast V moves with f, where that can be much faster than f itself: exp(f) has no bounded slope."""
        return max(self.datafit.bend, 1.0) if self.datafit.loss.smooth and self.datafit.smoothness is None else 1.0

    def point(self, f: Matrix) -> Matrix:
        """V(f)."""
        return self.datafit.weights * self._slope(self.shifted(f))

    def predictions(self, P: Matrix, V: Matrix) -> Matrix:
        """An f with V(f) about V, where V is a (sub)gradient of F at the predictions P."""
        return P if self.datafit.loss.smooth else P + _WIDTH * V / self.datafit.weights

    def pull(self, f: Matrix, slope: Matrix) -> Matrix:
        r"""The gradient in f of a function with gradient ``slope`` in V.

        With J_i the Hessians at f + b, dV_i = J_i (df_i + db), and sum_i dV_i = 0 fixes db; so it is J_i (slope_i - l),
        where sum_i J_i l = sum_i J_i slope_i.
        """
        P = self.shifted(f)
        if self._plain:
            J = self.datafit.weights * self.datafit.loss.curvature(P, self.datafit.targets)
            level = (J * slope).sum(0) / J.sum(0).clamp(min=1e-300) if self.datafit.intercept else 0.0
            return J * (slope - level)
        P = P.detach().requires_grad_(True)
        V = self.datafit.weights * self._slope(P)

        def times(G: Tensor) -> Tensor:
            return torch.autograd.grad((V * G).sum(), P, retain_graph=True)[0]  # a number: see _Lift.back

        direct = times(slope)
        if not self.datafit.intercept:
            return direct
        units = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        columns = [times(unit.expand_as(f)) for unit in units]
        total = torch.stack([column.sum(0) for column in columns])
        level = torch.linalg.pinv(total, hermitian=True, rtol=1e-10) @ direct.sum(0)  # softmax's is singular
        return direct - torch.einsum("k,knc->nc", level, torch.stack(columns))

    @property
    def _plain(self) -> bool:
        """Whether the Hessians are the diagonal matrices of the loss's curvatures."""
        return self.datafit.loss.separable and self.datafit.loss.smooth
