"""The geometry of patches of images, and their pooling."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from bidual.operators.patches.pooling import Pooling
from bidual.runtime.registry import Part


@dataclass(frozen=True, eq=False)
class Convolution(Part):
    """The geometry of a convolution in one or two dimensions.

    Attributes:
        kernel_size, stride, padding, dilation: as in torch, one number per dimension; padding is with zeros.
        pooling: a grid to average to, one number per dimension, () for one global average; or the matrix P_a.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    pooling: tuple[int, ...] | Tensor = ()
    name = "convolution"

    def __post_init__(self) -> None:
        if len(self.kernel_size) not in (1, 2):
            raise ValueError(f"convolutions have one or two dimensions, got kernel_size={self.kernel_size}.")
        for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            self._check_numbers(name, getattr(self, name), least)
        if not isinstance(self.pooling, Tensor) and self.pooling:
            self._check_numbers("pooling", self.pooling, 1)

    def _check_numbers(self, name: str, given: tuple[int, ...], least: int) -> None:
        whole = all(isinstance(number, int) and not isinstance(number, bool) and number >= least for number in given)
        if len(given) != self.dims or not whole:
            raise ValueError(f"{name} needs {self.dims} whole numbers of at least {least}, got {given}.")

    @classmethod
    def of(
        cls,
        dims: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        pooling: int | Sequence[int] | Tensor = (),
    ) -> "Convolution":
        """The same number for every dimension where only one is given."""
        return cls(
            _per_dimension(kernel_size, dims),
            _per_dimension(stride, dims),
            _per_dimension(padding, dims),
            _per_dimension(dilation, dims),
            pooling if isinstance(pooling, Tensor) else _per_dimension(pooling, dims),
        )

    def pooled(self, pooling: tuple[int, ...] | Tensor) -> "Convolution":
        """The same patches, pooled in another way."""
        return replace(self, pooling=pooling)

    @property
    def dims(self) -> int:
        return len(self.kernel_size)

    @property
    def geometry(self) -> tuple[tuple[int, ...], ...]:
        """Everything but the pooling."""
        return self.kernel_size, self.stride, self.padding, self.dilation

    def map_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The number of patches along every dimension of images (channels, ...) of this shape."""
        if len(shape) != self.dims + 1:
            size = "(channels, length)" if self.dims == 1 else "(channels, height, width)"
            raise ValueError(f"a {self.dims}-dimensional convolution needs images of shape {size}, got {tuple(shape)}.")
        count = []
        for length, kernel, stride, padding, dilation in zip(
            shape[1:], self.kernel_size, self.stride, self.padding, self.dilation, strict=True
        ):
            span = dilation * (kernel - 1) + 1
            if length + 2 * padding < span:
                raise ValueError(
                    f"an image of shape {tuple(shape)} with padding {self.padding} is smaller than a filter that spans "
                    f"{span}; use a smaller kernel_size, or padding."
                )
            count.append((length + 2 * padding - span) // stride + 1)
        return tuple(count)

    @property
    def readouts(self) -> int:
        """a, without making P_a."""
        return len(self.pooling) if isinstance(self.pooling, Tensor) else prod(self.grid)

    def pooling_for(self, shape: Sequence[int], like: Tensor) -> Pooling:
        """P_a for images of this shape."""
        patches = self.map_of(shape)
        if isinstance(self.pooling, Tensor):
            return Pooling.by_matrix(patches, self.pooling, like)
        return Pooling.to_grid(patches, self.grid, like)

    @property
    def grid(self) -> tuple[int, ...]:
        """The grid that windows are averaged to."""
        assert not isinstance(self.pooling, Tensor)
        return self.pooling or (1,) * self.dims

    def unfold(self, X: Float[Tensor, "n channels *size"]) -> Float[Tensor, "n h k"]:
        """The patches of every image as columns, each ordered (channel, position), as a filter is."""
        one = self.dims == 1
        geometry = [(1, *part) if one else part for part in (self.kernel_size, self.dilation)]
        geometry += [(0, *self.padding) if one else self.padding, (1, *self.stride) if one else self.stride]
        return functional.unfold(X[:, :, None] if one else X, *geometry)

    def rows_of(self, channels: int) -> int:
        return channels * prod(self.kernel_size)


def _per_dimension(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    numbers = value if isinstance(value, Sequence) else (value,) * dims
    return tuple(int(number) if isinstance(number, Integral) else number for number in numbers)
