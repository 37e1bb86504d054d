"""The cones of sub-network gates, and vectors as differences of two points of a cone."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.numerics.rounding import gamma

Units = Float[Tensor, "q m d"]

_ROUNDING = 1e-12  # violations up to this share of the size of a pre-activation are rounding


class Slacks(NamedTuple):
    """The left sides of the inequalities of both layers; negative is outside."""

    first: Float[Tensor, "q m n"]
    second: Float[Tensor, "q n"]


@dataclass(frozen=True, eq=False)
class GateCones:
    r"""(2 D_1j - I) X s_j z_j >= 0 and (2 D_2 - I) sum_j D_1j X z_j >= 0 for q sub-networks (PR A.4, eq. 21).

    In the coordinates z_j = s_j w_j of the lifted variable, where A z = D_2 sum_j D_1j X z_j.

    Attributes:
        sides: (2 D_1j - I) s_j.
        on: D_1j.
        outer: 2 D_2 - I.
        interior: a point of every cone, the sub-network whose gates these are.
    """

    X: Float[Tensor, "n d"]
    sides: Float[Tensor, "q m n"]
    on: Float[Tensor, "q m n"]
    outer: Float[Tensor, "q n"]
    interior: Units

    @classmethod
    def of(cls, gates: SubNetworkGates, X: Float[Tensor, "n d"]) -> Self:
        gates, (first, second) = gates.to(X), gates.activity(X)
        on = first.to(X)
        return cls(X, (2 * on - 1) * gates.signs[:, :, None], on, 2 * second.to(X) - 1, gates.interior)

    def __len__(self) -> int:
        return len(self.outer)

    def __getitem__(self, chosen: Int[Tensor, " q"]) -> Self:
        return type(self)(self.X, self.sides[chosen], self.on[chosen], self.outer[chosen], self.interior[chosen])

    def slacks(self, z: Units) -> Slacks:
        linear = z @ self.X.T
        return Slacks(self.sides * linear, self.outer * (self.on * linear).sum(1))

    def sizes(self, z: Units) -> Slacks:
        """Bounds of the slacks that rounding scales with."""
        linear = z.abs() @ self.X.abs().T
        return Slacks(linear, (self.on * linear).sum(1))

    def price(self, p: Units, u: Units) -> Float[Tensor, " q"]:
        """|u + p| + |p|, the price of the split u = (u + p) - p."""
        return _length(u + p) + _length(p)

    def holds(self, z: Units, tol: float = 1e-9) -> bool:
        """Whether z lies in its cones, up to ``tol`` of the size of the pre-activations."""
        return all(bool((a >= -tol * s).all()) for a, s in zip(self.slacks(z), self.sizes(z), strict=True))

    def moved_inside(self, z: Units) -> Units:
        r"""z + t W with the least t that is proved to be in the cones, in real arithmetic; zero, which is in all cones,
        where W is on a border and z is not proved to be inside.

        A slack is a sum of m d products, so the computed one is off by gamma(m d + 4) times its size, and entries of
        z + t W are rounded twice.
        """
        sure = 2 * gamma(self.X.shape[1] * z.shape[1] + 8)
        moved = z + self._reach(z, sure)[:, None, None] * self.interior
        inside = [
            (at >= sure / 2 * size).flatten(1).all(1)
            for at, size in zip(self.slacks(moved), self.sizes(moved), strict=True)
        ]
        return torch.where((inside[0] & inside[1])[:, None, None], moved, 0.0)

    def split(self, u: Units) -> Units:
        r"""p with p and u + p in the cones, along the interior point W: the shorter of

        p = t W, t = max_i (-G u)_i / (G W)_i   and   p = t W - u, t = max_i (G u)_i / (G W)_i.
        """
        up, down = (self._reach(sign * u)[:, None, None] * self.interior for sign in (1.0, -1.0))
        down = down - u
        shorter = self.price(up, u) <= self.price(down, u)
        return torch.where(shorter[:, None, None], up, down)

    def _reach(self, u: Units, sure: float = 0.0) -> Float[Tensor, " q"]:
        """The least t >= 0 with u + t W in the cones, up to rounding, or by ``sure`` of the size of the slacks."""
        parts = []
        for at_u, at_w, size, room in zip(
            self.slacks(u), self.slacks(self.interior), self.sizes(u), self.sizes(self.interior), strict=True
        ):
            outside = at_u < -_ROUNDING * size
            if bool((outside & (at_w <= _ROUNDING * room)).any()):
                raise ValueError(
                    "a sampled sub-network lies on the border of its own cone, where a unit is zero on a sample; draw "
                    "other gates."
                )
            lacking, gained = sure * size - at_u, at_w - sure * room
            wanted = outside | ((lacking > 0) & (gained > 0) & (sure > 0))
            parts.append(torch.where(wanted, lacking / torch.where(wanted, gained, 1.0), 0.0).flatten(1).amax(1))
        return torch.maximum(*parts)


def _length(z: Units) -> Float[Tensor, " q"]:
    return torch.linalg.vector_norm(z, dim=(1, 2))
