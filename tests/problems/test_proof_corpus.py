"""Proof files that were written once, by tests/corpus/make.py: the checker goes on to accept them."""

from pathlib import Path

import mpmath
import numpy as np
import pytest

from bidual.cli.bidual_check import LOSSES, bounds, read_proof, verdict
from helpers.places import ROOT
from helpers.proof_tools import changed, times
from oracles.proof_reader import DIGITS, Reader

CORPUS = ROOT / "tests" / "corpus"
FILES = sorted(CORPUS.glob("*.proof"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_corpus(path: Path) -> None:
    data = path.with_suffix(".data")
    code, sentence = verdict(path, data if data.exists() else None)
    assert code == 0, sentence


def test_the_corpus_has_every_loss_and_route_and_is_small() -> None:
    names = {path.stem for path in FILES}
    assert names >= {f"{kind}_{loss}" for kind in ("gated", "linear", "neurons", "plane") for loss in LOSSES}
    routes = {
        "products_one_output",
        "products_two_outputs",
        "products_without_signs",
        "products_clusters",
        "beside",
        "dense",
    }
    assert names >= routes
    assert sum(path.stat().st_size for path in CORPUS.iterdir() if path.is_file()) < 2 * 10**6


BLOCKS = [path for path in FILES if not path.stem.startswith(("plane", "products"))]


@pytest.mark.parametrize("path", BLOCKS, ids=lambda path: path.stem)
def test_a_second_checker_agrees(path: Path, tmp_path: Path) -> None:
    """In mpmath, from docs/proof_format.md alone: the same bounds, and the same answer where numbers are changed."""
    data = path.with_suffix(".data")
    beside = data if data.exists() else None
    with mpmath.workdps(DIGITS):
        found, second = bounds(read_proof(path, beside)), Reader(path, beside)
        assert second.holds
        for ours, theirs in ((found.primal, second.primal()), (found.dual, second.dual())):
            assert abs(mpmath.mpf(ours.numerator) / ours.denominator - theirs) <= 1e-13 * second.primal()
    if beside is not None:
        return
    copy = tmp_path / "proof"
    copy.write_bytes(path.read_bytes())
    draw = np.random.default_rng(0)
    for name in ("point", "dual_point", "targets", "beta", "primal", "dual"):
        code, _ = changed(copy, times(name, float(draw.choice([0.7, 0.999, 1.001, 1.3]))))
        if code != 2:
            with mpmath.workdps(DIGITS):
                assert Reader(tmp_path / "changed").holds is (code == 0), name
