"""Anderson acceleration (type II) of a fixed-point iteration."""

import numpy as np
import torch
from torch import Tensor


class Anderson:
    """Keeps the last differences of residuals f = F(x) - x and of images F(x); mixes when it has three.

    The next iterate is F(x) - sum_j gamma_j dF_j, with the gamma that fits f by the df_j best. The memory is dropped
    when the residual grows by more than twofold. Differences lie in one array each, written over in turn.
    """

    def __init__(self, memory: int = 10, regularisation: float = 1e-10) -> None:
        self.memory, self.regularisation = memory, regularisation
        self.residuals = self.images = torch.empty(0)
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self.gram = np.zeros((self.memory, self.memory))
        self.previous: tuple[Tensor, Tensor] | None = None
        self.smallest = float("inf")

    def mix(self, residual: Tensor, image: Tensor) -> Tensor:
        """The next iterate from the residual and the image of the last, both flat."""
        size = float(residual @ residual)
        if size > 4 * self.smallest:
            self.reset()
        self._remember(residual, image)
        self.smallest = min(self.smallest, size)
        used = min(self.count, self.memory)
        if used < 3:
            return image
        weights = self._weights(used, (self.residuals[:used] @ residual).cpu().numpy().astype(np.float64))
        if weights is None:
            return image
        return torch.addmv(image, self.images[:used].T, torch.from_numpy(weights).to(image), alpha=-1)

    def _weights(self, used: int, right: np.ndarray) -> np.ndarray | None:
        gram = self.gram[:used, :used].copy()
        gram.flat[:: used + 1] += self.regularisation * gram.trace()
        try:
            weights = np.linalg.solve(gram, right)
        except np.linalg.LinAlgError:
            return None
        return weights if np.isfinite(weights).all() else None

    def _remember(self, residual: Tensor, image: Tensor) -> None:
        if self.previous is not None:
            if self.residuals.shape[-1:] != residual.shape or self.images.shape[-1:] != image.shape:
                self.residuals = residual.new_zeros(self.memory, len(residual))
                self.images = image.new_zeros(self.memory, len(image))
            at = self.count % self.memory
            torch.sub(residual, self.previous[0], out=self.residuals[at])
            torch.sub(image, self.previous[1], out=self.images[at])
            self.count += 1
            used = min(self.count, self.memory)
            self.gram[at, :used] = self.gram[:used, at] = (self.residuals[:used] @ self.residuals[at]).cpu().numpy()
        self.previous = (residual, image)
