"""A short form of the campaign, and that it would see a wrong certificate."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bidual.polar import Faces
from bidual.problems.certificate import SoundnessError
from soundness import campaign
from soundness.blocks import block_case
from soundness.campaign import CASES, Kept, Tally, draw, report
from soundness.cases import Bound, Case, Issued
from soundness.polar import ATTACKS, Asked, polar_case
from soundness.samples import HARD
from soundness.steepest import directions_of

SEEDS = range(1_000_000, 1_000_020)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 5))
def test_no_certificate_is_unsound(first: int) -> None:
    total = Tally()
    for seed in SEEDS[first : first + 5]:
        total.add(draw(seed))
    assert total.certificates + total.bounds >= 10
    assert total.unsound == []
    assert total.crashed == []
    assert min(total.dual_slack, total.primal_slack, *total.bound_slack.values()) >= 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_kind_of_case_issues_certificates(case: Case) -> None:
    tally = Tally()
    for issued in case(np.random.default_rng(3)):
        tally.check(issued, 3)
    assert tally.certificates + tally.bounds > 0
    assert tally.unsound == []


@pytest.mark.parametrize("oracle", ATTACKS)
def test_every_oracle_is_attacked(oracle: str) -> None:
    """On samples of rank two, where the search is exact."""
    rng = np.random.default_rng(0)
    X, V = HARD["close pairs"](rng, 8, 2), rng.standard_normal((8, 2))
    asked = Asked(torch.from_numpy(X), torch.from_numpy(V), directions_of(rng, X, V))
    tally = Tally()
    tally.check(Issued({}, bounds=ATTACKS[oracle].ask(rng, asked)), 0)
    assert tally.bounds
    assert tally.unsound == []


@pytest.mark.parametrize("bound", ["dual", "primal"])
def test_a_bound_that_is_wrong_by_two_roundings_is_seen(bound: str) -> None:
    """The certificate that is nearest to the optimum, moved across it."""
    drawn = (issued for seed in range(5, 20) for issued in block_case(np.random.default_rng(seed)))
    issued = next(issued for issued in drawn if issued.certificates and 0 < issued.certificates[0][1] < np.inf)
    certificate, own = issued.certificates[0]
    least = min(value for _, value in issued.certificates if np.isfinite(value))
    wrong = float(np.nextafter(float(least), np.inf)) if bound == "dual" else float(np.nextafter(float(own), -np.inf))
    issued.certificates[0] = (replace(certificate, **{bound: wrong}), own)
    issued.attained.clear()
    tally = Tally()
    tally.check(issued, 5)
    assert tally.unsound


@pytest.mark.parametrize("kind", ["plain", "close pairs", "whole numbers", "lengths apart"])
@pytest.mark.parametrize("d", [2, 3])
def test_a_bound_of_a_polar_that_is_wrong_by_a_few_roundings_is_seen(kind: str, d: int) -> None:
    """The search reaches what the exact oracle attains, and a bound just below that is refuted."""
    rng = np.random.default_rng(1)
    X = HARD[kind](rng, 7, d)
    V = rng.standard_normal((7, 2)) / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
    asked = Asked(torch.from_numpy(X), torch.from_numpy(V), directions_of(rng, X, V))
    attained, value = Faces(asked.X).steepest(asked.V).bracket.lower, asked.value()
    assert value >= np.longdouble(attained) * (1 - 1e-14)
    tally = Tally()
    tally.check(Issued({}, bounds=[Bound("too small", float(value) * (1 - 1e-15), value)]), 0)
    assert len(tally.unsound) == tally.bounds == 1


def test_false_claims_and_weak_duality_count_as_unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    tally.check(Issued({}, false=["it can be rechecked"]), 1)

    def contradicts(rng: np.random.Generator) -> list[Issued]:
        raise SoundnessError("dual 2 exceeds primal 1")

    monkeypatch.setattr(campaign, "CASES", {contradicts: 1.0})
    tally.add(draw(2))
    assert [found["seed"] for found in tally.unsound] == [1, 2]
    assert tally.crashed == []


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    one, two = Tally(), Tally()
    for issued in polar_case(np.random.default_rng(0)):
        one.check(issued, 0)
    two.check(next(block_case(np.random.default_rng(5))), 5)
    one.add(two)
    Kept(tmp_path / "done.jsonl").keep(0, one)
    with (tmp_path / "done.jsonl").open("a") as file:
        file.write('{"first": 25, "prob')  # killed while it wrote
    again = Kept(tmp_path / "done.jsonl")
    assert again.done == {0}
    assert vars(again.total) == vars(one)
    assert json.loads(json.dumps(report(again.total, 0)))["number_unsound"] == 0


def test_campaigns_of_neighbouring_seeds_share_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "draws", _nothing)
    kept = [Kept(tmp_path / f"{seed}.jsonl") for seed in (3, 4)]
    for seed, one in zip((3, 4), kept, strict=True):
        campaign.run(one, 2, 600.0, 1, seed)
    assert len(kept[0].done) == len(kept[1].done) == 2
    assert max(kept[0].done) + 20_000 < min(kept[1].done)


def _nothing(first: int) -> Tally:
    """One problem, not drawn."""
    return Tally(problems=1)
