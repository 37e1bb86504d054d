from dataclasses import replace

import pytest

from helpers.race_tools import load, make_run
from race_results import CaseResult, Race

cases, race, report, systems = (load(name) for name in ("cases", "race", "report", "systems"))


def result_of(case, seconds=0.5):
    runs = (make_run("bidual", (seconds, 1e-9)), *(make_run(name, (3.0, 1e-9)) for name in case.needs))
    spec = case.spec
    return CaseResult(case.name, spec.label, spec.as_dict(), case.target, dict(case.needs), None, 100.0, "then", runs)


FACTS = {"date": "today", "commit": "abc+", "machine": {"processor": "any"}, "versions": {"celer": {"celer": "1"}}}


def test_every_case_has_a_name_of_its_own_and_rivals():
    for group in (cases.CASES, cases.QUICK):
        assert len({case.name for case in group}) == len(group)
        assert all(case.needs for case in group)
    assert max(case.spec.n for case in cases.QUICK) <= 500


def test_the_demands_are_those_of_the_project():
    found = {case.name: case for case in cases.CASES}
    assert set(found["gated-2000-c5-0.01"].needs.values()) == {30.0}
    assert set(found["gated-2000-c1-0.1"].needs.values()) == {8.0}
    assert found["nuclear-2000-0.1"].at_most == 1.5
    assert found["spiral-0.001"].needs == {"clarabel": 3.0, "cvxpy clarabel": 6.0, "cvxpy scs": 6.0}
    assert found["path-2000"].spec.path == 20


def test_unknown_rivals_are_refused():
    with pytest.raises(ValueError, match="rivals must be among"):
        cases.Case("a", cases.CASES[0].spec, 1e-6, {"nobody": 1.0})


def test_a_ladder_of_gaps_ends_at_the_target_or_below():
    ours, fista, last = (systems.SYSTEMS[name] for name in ("bidual", "bidual fista", "bidual last point"))
    assert ours.tolerances(1e-6, False)[-1] == pytest.approx(1e-8)
    assert fista.tolerances(1e-4, False) == pytest.approx((1e-1, 1e-2, 1e-3, 1e-4))
    assert last.tolerances(1e-3, False) == pytest.approx((1e-3,))


def test_workers_have_one_thread():
    assert systems.one_thread()["OMP_NUM_THREADS"] == systems.one_thread()["NUMBA_NUM_THREADS"] == "1"


def test_what_is_kept_is_of_the_same_problem_with_the_demands_of_today(tmp_path):
    first, second = cases.CASES[:2]
    stored = Race(FACTS, (result_of(first), result_of(second)))
    (tmp_path / "peers.json").write_text(stored.as_json())
    changed = replace(second, target=1e-5)
    stricter = replace(first, needs=dict.fromkeys(first.needs, 99.0))
    kept = race.kept([stricter, changed], tmp_path / "peers.json")
    assert list(kept) == [first.name]
    assert set(kept[first.name].needs.values()) == {99.0}
    assert race.kept([first], tmp_path / "none.json") == {}


def test_chosen_cases():
    first, second, third = cases.CASES[:3]
    assert race.chosen([first, second, third], None, {second.name}) == [first, third]
    assert race.chosen([first, second, third], [second.name], ()) == [second]
    with pytest.raises(SystemExit, match="no such case: x"):
        race.chosen([first], ["x"], ())


def test_the_report_names_everybody():
    shown = Race(FACTS, tuple(map(result_of, cases.CASES)))
    text = report.markdown(shown)
    assert all(name in text for name in systems.SYSTEMS)
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert report.curves(shown.cases[:3]).startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_race_against_ourselves_and_somebody_who_is_not_there(tmp_path):
    spec = replace(cases.CASES[0].spec, n=40, d=4, patterns=8)
    case = cases.Case("tiny", spec, 1e-4, {"bidual fista": 1.0, "celer": 1.0})
    *_, found = race.run_race([case], [case], tmp_path / "peers.json", tmp_path / "none", 60.0)
    (done,) = found.cases
    assert done.ours is not None
    assert done.rivals[0].seconds_to(1e-4) is not None
    assert done.rivals[1].message.startswith("there is no environment")
    assert all(rung.gap <= rung.claimed + 1e-12 for rung in done.runs[0].rungs)
