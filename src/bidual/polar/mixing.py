"""Anderson acceleration (type II) of a fixed-point iteration on one array."""

import numpy as np
from numpy import ndarray


class Mixing:
    """x_next = F(x) - sum_j gamma_j dF_j with gamma from least squares on the last differences of F(x) - x.

    The memory is dropped when the residual grows by more than ``growth``, so plain steps are never far.
    """

    def __init__(self, memory: int = 15, regularisation: float = 1e-10, growth: float = 2.0) -> None:
        self.memory, self.regularisation, self.growth = memory, regularisation, growth
        self.forget()

    def forget(self) -> None:
        self.residuals: list[ndarray] = []
        self.images: list[ndarray] = []
        self.last: tuple[ndarray, ndarray] | None = None
        self.smallest = np.inf

    def next(self, point: ndarray, image: ndarray) -> ndarray:
        residual = (image - point).ravel()
        size = float(np.linalg.norm(residual))
        if size > self.growth * self.smallest:
            self.forget()
        self.smallest = min(self.smallest, size)
        if self.last is not None:
            self.residuals.append(residual - self.last[0])
            self.images.append(image - self.last[1])
            del self.residuals[: -self.memory], self.images[: -self.memory]
        self.last = (residual, image)
        return image - self._correction(residual, image) if len(self.residuals) > 2 else image

    def _correction(self, residual: ndarray, image: ndarray) -> ndarray:
        D = np.stack(self.residuals)
        gram = D @ D.T
        gram[np.diag_indices_from(gram)] += self.regularisation * np.trace(gram) + 1e-300
        gamma = np.linalg.solve(gram, D @ residual)
        return np.tensordot(gamma, np.stack(self.images), 1)
