"""Writes the proof files beside it: one per loss, and one per way to bound the polar.

`PYTHONPATH=src:tests python tests/corpus/make.py`
"""

from pathlib import Path

import numpy as np
import torch

from bidual import ConvexCNNRegressor
from bidual.gauges import Group, Nuclear
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.proof_tools import solved, targets, with_products

FOLDER = Path(__file__).parent
NAMES = ("squared", "absolute", "huber", "quantile", "hinge", "squared_hinge", "logistic", "softmax", "poisson")
PRODUCTS = {
    "one_output": (10, 3, 1, False, 0, {"steps": 20}),
    "two_outputs": (8, 3, 2, True, 1, {"steps": 20}),
    "without_signs": (8, 3, 2, False, 2, {"steps": 20, "most_outputs": 1}),
    "clusters": (16, 3, 1, True, 3, {"dense": 1, "clusters": 5}),
}


def in_the_plane(name: str, seed: int) -> None:
    """A network over all patterns of samples of two numbers."""
    generator = torch.Generator().manual_seed(seed)
    X, loss = torch.randn(10, 2, generator=generator, dtype=torch.float64), LOSSES[name]()
    problem = ReluProblem(X, Datafit(loss, targets(loss, 2, generator), None, True), 0.5)
    done = solve(problem, ColumnGeneration(problem.oracle(Faces)), Limits(1e-6, max_time=5))
    done.certificate.save_proof(FOLDER / f"plane_{name}.proof", done.problem)


def main() -> None:
    for seed, name in enumerate(NAMES):
        for which, kind in enumerate(("gated", "linear", "neurons")):
            gauge = Nuclear() if kind == "gated" else Group()
            certificate, problem = solved(LOSSES[name](), 2, seed, which, gauge, seed % 2 == 0)
            certificate.save_proof(FOLDER / f"{kind}_{name}.proof", problem)
        in_the_plane(name, seed)
    for name, (*sizes, settings) in PRODUCTS.items():
        certificate, program = with_products(*sizes, **settings)
        certificate.save_proof(FOLDER / f"products_{name}.proof", program)
    images = np.random.default_rng(0).normal(size=(6, 1, 4, 4))
    model = ConvexCNNRegressor(activation="gated_relu", n_gates=2, beta=0.3).fit(images, images[:, 0, 0, 0])
    model.save_proof(FOLDER / "dense.proof")
    certificate, problem = solved(Squared(), 1, 5, 0, Group(), True)
    certificate.save_proof(FOLDER / "beside.proof", problem, FOLDER / "beside.data")


if __name__ == "__main__":
    main()
