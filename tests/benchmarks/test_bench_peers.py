"""The table of a race with other systems, as `benchmarks/bench.py --peers` shows it."""

import json
from pathlib import Path

import pytest

import bench


def write_race(folder: Path) -> Path:
    """We arrive, one rival does too, one is stopped, one crashes."""

    def rung(seconds: float, gap: float) -> dict[str, float | None]:
        return {"tolerance": gap, "cpu": seconds, "wall": seconds, "gap": gap, "claimed": None}

    runs = [
        {"system": "bidual", "rungs": [rung(0.5, 1e-7)], "ending": "done", "message": ""},
        {"system": "celer", "rungs": [rung(4.0, 1e-8)], "ending": "done", "message": ""},
        {"system": "adelie", "rungs": [rung(9.0, 3e-5)], "ending": "limit", "message": ""},
        {"system": "pyscnn", "rungs": [], "ending": "crash", "message": "MemoryError"},
    ]
    case = {"name": "tiny", "label": "tiny work", "spec": {}, "target": 1e-6, "at_most": None, "limit": 100.0}
    case |= {"needs": {"celer": 3.0, "adelie": 3.0, "pyscnn": 3.0}, "measured": "today", "runs": runs}
    (folder / "race.json").write_text(json.dumps({"commit": "abc", "cases": [case]}))
    return folder / "race.json"


def test_a_race_is_shown_with_its_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--peers", str(write_race(tmp_path))])
    text = capsys.readouterr().out
    for word in ("tiny work", "0.5 s", "celer: 4 s (×8)", "adelie: > 100 s", "crash, no answer", "×8 (celer)", "open"):
        assert word in text


def test_a_race_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--peers", str(write_race(tmp_path)), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["commit"] == "abc"
    assert found["rows"][0]["ratio"] == "×8 (celer)"
    assert found["rows"][0]["rivals"]["adelie"] == "> 100 s, gap 3e-05"


@pytest.mark.parametrize(
    ("name", "message"),
    [("other.json", "other.json is no result of benchmarks/peers/race.py"), ("none.json", "No such file")],
)
def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
    (tmp_path / "other.json").write_text('{"cases": 3}')
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--peers", str(tmp_path / name)])
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err
