"""The gauge of each pair of norms on the two layers."""

from bidual.gauges import Entries, Gauge, Largest, LargestPerOutput, Nuclear, PerInput, PerOutput
from bidual.numerics.norms import Norm

_PAIRS: dict[tuple[str, str], type[Gauge]] = {
    ("l2", "l2"): Nuclear,
    ("l2", "l1"): PerOutput,
    ("l1", "l2"): PerInput,
    ("l1", "l1"): Entries,
    ("l1", "linf"): Largest,
    ("linf", "l1"): LargestPerOutput,
}


def pair_gauge(hidden: Norm, output: Norm, n_outputs: int) -> Gauge:
    r"""|Z|_D of BM (15) on whole blocks, for linear and gated networks: the least sum_j |u_j|_C |w_j|_R with Z = U W^T.

    With one output |w|_R is |w| for every R. The other pairs have max { u^T G v } over a cube and a ball as their
    polar, which includes the maximum cut of a graph: no gauge for them here is both exact and fast.
    """
    pair = (hidden.name, "l1" if n_outputs == 1 else output.name)
    if pair not in _PAIRS:
        raise ValueError(
            f"the price of hidden norm {hidden.name} with output norm {output.name} is NP-hard for several outputs. "
            "Use l1 on either layer, l2 on both, or a relu network, whose neurons are priced one by one."
        )
    return _PAIRS[pair]()
