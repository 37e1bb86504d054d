"""A short form of the campaign, and that it would see a wrong certificate."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soundness.blocks import block_case
from soundness.campaign import CASES, Kept, Tally, draw, report
from soundness.cases import Case

SEEDS = range(1_000_000, 1_000_040)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 10))
def test_no_certificate_is_unsound(first: int) -> None:
    total = Tally()
    for seed in SEEDS[first : first + 10]:
        total.add(draw(seed))
    assert total.certificates >= 30
    assert total.unsound == []
    assert total.crashed == []
    assert total.dual_slack >= 0
    assert total.primal_slack >= 0


@pytest.mark.parametrize("case", [case for case, _ in CASES], ids=lambda case: case.__name__)
def test_every_kind_of_case_issues_certificates(case: Case) -> None:
    tally = Tally()
    for issued in case(np.random.default_rng(3)):
        tally.check(issued, 3)
    assert tally.certificates > 0
    assert tally.unsound == []


@pytest.mark.parametrize("bound", ["dual", "primal"])
def test_a_bound_that_is_wrong_by_two_roundings_is_seen(bound: str) -> None:
    """The certificate that is nearest to the optimum, moved across it."""
    issued = next(block_case(np.random.default_rng(5)))
    certificate, own = issued.certificates[0]
    least = min(value for _, value in issued.certificates if np.isfinite(value))
    wrong = float(np.nextafter(float(least), np.inf)) if bound == "dual" else float(np.nextafter(float(own), -np.inf))
    issued.certificates[0] = (replace(certificate, **{bound: wrong}), own)
    issued.attained.clear()
    tally = Tally()
    tally.check(issued, 5)
    assert tally.unsound


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    one = draw(SEEDS[0])
    Kept(tmp_path / "done.jsonl").keep(0, one)
    again = Kept(tmp_path / "done.jsonl")
    assert again.done == {0}
    assert (again.total.problems, again.total.certificates) == (one.problems, one.certificates)
    assert again.total.counts == one.counts
    assert json.loads(json.dumps(report(again.total, 0)))["number_unsound"] == 0
