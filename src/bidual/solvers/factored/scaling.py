"""Sums and means over samples."""

from enum import Enum

from bidual.types import Matrix


class Scaling(Enum):
    """How the data term is normalised, as a factor of the sum F over samples."""

    SUM = "sum"  # F, the scaling of everything else here
    MEAN = "mean"  # F / n
    MSE = "mse"  # 2 F / (n c), what torch.nn.MSELoss makes of squared loss

    def factor(self, targets: Matrix) -> float:
        n, c = targets.shape
        return {"sum": 1.0, "mean": 1 / n, "mse": 2 / (n * c)}[self.value]
