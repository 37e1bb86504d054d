import math
from pathlib import Path

import pytest

from helpers.race_tools import make_result, make_run
from race_results import Ending, Race, read_race
from race_table import row

OURS = make_run("bidual", (0.1, 1e-3), (0.5, 1e-7), (0.7, 1e-9))


def test_time_to_a_gap_is_that_of_the_fastest_solve_that_is_good_enough() -> None:
    run = make_run("celer", (1.0, 1e-3), (3.0, 1e-7), (2.0, 1e-8))
    assert run.seconds_to(1e-6) == 2.0
    assert run.seconds_to(1e-9) is None
    assert run.best_gap == 1e-8


def test_the_best_rival_decides() -> None:
    rivals = (make_run("celer", (5.0, 1e-7)), make_run("adelie", (2.0, 1e-7)))
    case = make_result(OURS, *rivals, needs={"celer": 3.0, "adelie": 3.0})
    assert (case.closest, case.met) == (("adelie", 4.0, False), True)
    assert make_result(OURS, *rivals, needs={"celer": 3.0, "adelie": 5.0}).met is False


def test_each_rival_has_its_own_demand() -> None:
    rivals = (make_run("clarabel", (2.0, 1e-7)), make_run("cvxpy scs", (2.5, 1e-7)))
    case = make_result(OURS, *rivals, needs={"clarabel": 3.0, "cvxpy scs": 6.0})
    assert case.closest is not None
    assert case.closest.system == "cvxpy scs"
    assert case.met is False


def test_a_rival_that_was_stopped_gives_a_bound() -> None:
    stopped = make_run("celer", (60.0, 3e-5), ending=Ending.LIMIT)
    assert make_result(OURS, stopped, needs={"celer": 30.0}).met is True
    case = make_result(OURS, stopped, needs={"celer": 300.0})
    assert case.closest == ("celer", 200.0, True)
    assert case.met is None
    assert row(case).rivals == {"celer": "> 100 s, gap 3e-05"}
    assert row(case)[-2:] == ("> ×200 (celer)", "open")


def test_a_rival_that_never_arrives_is_beaten_by_any_factor() -> None:
    case = make_result(OURS, make_run("adelie", (4.0, 2e-3)), needs={"adelie": 30.0})
    assert case.closest is not None
    assert case.closest.value == math.inf
    assert case.met is True
    assert row(case).rivals == {"adelie": "not reached, gap 2e-03 after 4 s"}
    assert row(case).ratio == "no rival arrives"


def test_a_crash_proves_nothing() -> None:
    crashed = make_run("pyscnn", ending=Ending.CRASH, message="MemoryError: out of memory")
    case = make_result(OURS, crashed, needs={"pyscnn": 5.0})
    assert (case.closest, case.met) == (None, None)
    assert row(case).rivals == {"pyscnn": "crash, no answer: MemoryError: out of memory"}
    other = make_run("skglm", (5.0, 1e-7))
    assert make_result(OURS, crashed, other, needs={"pyscnn": 5.0, "skglm": 5.0}).met is None


def test_we_must_arrive_ourselves_and_in_time() -> None:
    late = make_run("bidual", (1.0, 1e-4), ending=Ending.LIMIT)
    case = make_result(late, make_run("celer", (5.0, 1e-7)), needs={"celer": 3.0})
    assert (case.ours, case.closest, case.met) == (None, None, False)
    assert row(case).ours == "> 100 s, gap 1e-04"
    shown = make_run("bidual fista", (0.1, 1e-7))
    assert make_result(OURS, shown, needs={"bidual fista": None}, at_most=1.0).met is True
    assert make_result(OURS, shown, needs={"bidual fista": None}, at_most=0.4).met is False


def test_a_race_survives_its_file(tmp_path: Path) -> None:
    race = Race({"commit": "abc"}, (make_result(OURS, make_run("celer", (5.0, 1e-7)), needs={"celer": 3.0}),))
    (tmp_path / "race.json").write_text(race.as_json())
    assert read_race(tmp_path / "race.json") == race


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"cases": [{}]}', '{"cases": [{"runs": []}]}', "\xff"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "race.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"race.json is no result of benchmarks/peers/race.py"):
        read_race(tmp_path / "race.json")
