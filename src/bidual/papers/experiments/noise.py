"""When one accuracy is above another by more than the noise of a test set."""

import math


def clearly_above(one: float, other: float, n: int) -> bool:
    """By more than two standard errors of the difference of two shares of n samples, taken as independent."""
    spread = math.sqrt((one * (1 - one) + other * (1 - other)) / n)
    return one - other > 2 * spread
