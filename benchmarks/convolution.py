"""Products of the gated CNN's operator against the equivalent torch network, forward plus backward, in one run.

    python benchmarks/convolution.py [--threads 1] [--repeat 5]

The lifted operator takes any Z_p of rank up to min(h, a c). The torch network that can represent it has so many filters
per gate; one with a single filter per gate is timed too, although it can represent rank one only. The operator is timed
with its design in memory (how solvers use it), and with the design made again in every product (beyond memory).
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bidual.operators import PooledOperator
from bidual.operators.patches import Convolution, ImagePatches


@dataclass(frozen=True)
class Case:
    """Images (n, channels, side, side), square filters, a pooling grid, gates and outputs."""

    name: str
    n: int
    channels: int
    side: int
    kernel: int
    padding: int
    grid: int
    gates: int
    outputs: int = 10


CASES = (
    Case("digits", 1347, 1, 8, 3, 0, 3, 100),
    Case("digits, padded", 1347, 1, 8, 3, 1, 4, 100),
    Case("32x32, 3 channels", 500, 3, 32, 3, 1, 4, 50),
)


def seconds(run: Callable[[], object], repeat: int) -> float:
    """The shortest of several runs, after one that is not counted."""
    run()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def operator_seconds(operator: PooledOperator, repeat: int) -> float:
    Z = torch.randn(operator.block_shape, dtype=operator.dtype)
    V = torch.randn(operator.output_shape, dtype=operator.dtype)
    return seconds(lambda: (operator.forward(Z), operator.adjoint(V)), repeat)


def network_seconds(case: Case, patches: ImagePatches, gates: Tensor, per_gate: int, repeat: int) -> float:
    """Convolution, gates, pooling and linear layer, forward and backward; the gates' masks are constants."""
    X, P = patches.X.float(), case.gates
    filters = gates.T.reshape(P, case.channels, case.kernel, case.kernel).float()
    mask = (functional.conv2d(X, filters, padding=case.padding) >= 0).float()[:, :, None]
    hidden = torch.randn(P * per_gate, *filters.shape[1:], requires_grad=True)
    output = torch.randn(case.outputs, P * per_gate * case.grid**2, requires_grad=True)
    V, window = torch.randn(case.n, case.outputs), patches.map[0] // case.grid

    def run() -> None:
        seen = functional.conv2d(X, hidden, padding=case.padding).unflatten(1, (P, per_gate)) * mask
        predictions = functional.avg_pool2d(seen.flatten(1, 2), window).flatten(1) @ output.T
        predictions.backward(V)
        hidden.grad = output.grad = None

    return seconds(run, repeat)


def measure(case: Case, repeat: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(case.n, case.channels, case.side, case.side, generator=generator, dtype=torch.float64)
    convolution = Convolution.of(2, case.kernel, padding=case.padding, pooling=case.grid)
    patches = ImagePatches(X, convolution)
    gates = torch.randn(patches.width, case.gates, generator=generator, dtype=torch.float64)
    kept = PooledOperator(patches, case.outputs, gates=gates, dtype=torch.float32)
    made = PooledOperator(patches, case.outputs, gates=gates, dtype=torch.float32)
    made.__dict__["_kept"] = None
    rank = min(patches.width, patches.readouts * case.outputs)
    return {
        "design kept": operator_seconds(kept, repeat),
        "design made again": operator_seconds(made, max(repeat // 2, 1)),
        f"torch, {rank} filters a gate": network_seconds(case, patches, gates, rank, max(repeat // 2, 1)),
        "torch, 1 filter a gate": network_seconds(case, patches, gates, 1, repeat),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for case in CASES:
        found = measure(case, options.repeat)
        print(f"{case.name}: " + ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in found.items()))
        ours, again, full, single = found.values()
        print(f"  kept / equivalent {ours / full:.2f}, kept / one filter a gate {ours / single:.2f}")
        print(f"  made again / equivalent {again / full:.2f}, made again / one filter a gate {again / single:.2f}")


if __name__ == "__main__":
    main()
