"""Anderson acceleration (type II) of a fixed-point iteration."""

import torch
from torch import Tensor


class Anderson:
    """Keeps the last differences of residuals f = F(x) - x and of images F(x); mixes when it has three.

    ``propose`` returns gamma, so that any quantity that is affine in the iterate is extrapolated alike:
    x_next = F(x) - sum_j gamma_j dF_j. The memory is dropped when the residual grows by more than twofold.
    """

    def __init__(self, memory: int = 6, regularisation: float = 1e-10) -> None:
        self.memory, self.regularisation = memory, regularisation
        self.reset()

    def reset(self) -> None:
        self.residuals: list[Tensor] = []
        self.images: list[tuple[Tensor, ...]] = []
        self.previous: tuple[Tensor, tuple[Tensor, ...]] | None = None
        self.smallest = float("inf")

    def mix(self, residual: Tensor, images: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next iterate from the residual (flat) and the images, one tensor per part of the iterate."""
        size = float(residual @ residual)
        if size > 4 * self.smallest:
            self.reset()
        self._remember(residual, images)
        self.smallest = min(self.smallest, size)
        if len(self.residuals) < 3:
            return images
        D = torch.stack(self.residuals)
        gram = (D @ D.T).double()
        gram.diagonal().add_(self.regularisation * gram.trace())
        gamma, failed = torch.linalg.solve_ex(gram, (D @ residual).double())
        if int(failed) or not bool(torch.isfinite(gamma).all()):
            return images
        weights = gamma.to(residual)
        return tuple(
            part - torch.tensordot(weights, torch.stack([old[i] for old in self.images]), 1)
            for i, part in enumerate(images)
        )

    def _remember(self, residual: Tensor, images: tuple[Tensor, ...]) -> None:
        if self.previous is not None:
            last_residual, last_images = self.previous
            self.residuals.append(residual - last_residual)
            self.images.append(tuple(new - old for new, old in zip(images, last_images, strict=True)))
            del self.residuals[: -self.memory], self.images[: -self.memory]
        self.previous = (residual, images)
