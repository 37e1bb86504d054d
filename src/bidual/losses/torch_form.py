"""How torch writes a loss: what turns the weight decay of its optimisers into beta."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TorchForm:
    r"""A loss of ``torch.nn`` in terms of one of this package, up to a constant that only depends on the targets.

    With ``reduction="sum"`` it is ``times`` the sum of losses here. ``reduction="mean"`` divides that by n c for n
    samples and c outputs, or by n where ``per_output`` is False; ``class_weights`` says that with class weights it
    divides by the weights of the samples instead, added up. The table of docs/certify.md is made of these.

    Attributes:
        module: the name in ``torch.nn``, with its arguments.
        times: its sum over the sum of losses here.
        per_output: whether its mean is also one over outputs.
        class_weights: whether its mean divides by the sum of the samples' class weights.
    """

    module: str
    times: float = 1.0
    per_output: bool = True
    class_weights: bool = False

    def divisor(self, reduction: str, n_samples: int, n_outputs: int) -> float:
        """What the sum is divided by, without class weights."""
        if reduction == "sum":
            return 1.0
        return float(n_samples * n_outputs if self.per_output else n_samples)

    def beta(self, weight_decay: float, divisor: float) -> float:
        r"""The beta with the same minimisers.

        torch minimises times / divisor sum_i l_i + weight_decay / 2 |theta|^2, here it is
        sum_i l_i + beta / 2 |theta|^2: the first is times / divisor of the second (docs/certify.md, "Weight decay").
        """
        return weight_decay * divisor / self.times
