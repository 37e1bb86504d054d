"""Proof files that were written once, by tests/corpus/make.py: the checker goes on to accept them."""

from pathlib import Path

import pytest

from bidual.cli.bidual_check import LOSSES, verdict
from helpers.places import ROOT

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
