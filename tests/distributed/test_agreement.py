"""One rank and two ranks find the same: operators, solutions with their certificates, and what is read from files."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bidual
from bidual.distributed import Ranks
from bidual.io.tables import TableEncoder, guess_task, read_table, target_values
from bidual.patterns import sample_gates
from helpers.agreement import CASES, SOLVERS, data, main, target_columns
from helpers.launching import made_once, torchrun, write_tables
from helpers.places import HELPERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With what one rank, in this process, and two ranks have written."""

    def make(folder: Path) -> str:
        write_tables(folder)
        script = HELPERS / "agreement.py"
        with torchrun(2, script, folder, folder / "2.json") as two:
            main(Ranks(), folder, folder / "1.json")
            return two.communicate(timeout=300)[1]

    return made_once(tmp_path_factory, "agreement", make)


@pytest.fixture(scope="module")
def found(folder):
    paths = [folder / f"{ranks}.json" for ranks in (1, 2)]
    assert all(path.exists() for path in paths), (folder / "done").read_text()
    return [json.loads(path.read_text()) for path in paths]


def test_operators_keep_their_contract(found):
    for each in found:
        assert each["contract"] == ["ShardedKernelOperator", "ShardedOperator"] * 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_solutions_are_the_same_and_certified(found, case):
    one, two = (next(s for s in each["solutions"] if s["case"] == list(case)) for each in found)
    assert max(one["gap"], two["gap"]) <= SOLVERS[case[2]][1] + 3e-9  # where a descent on neurons ends by rounding
    assert all(s["holds"] and s["holds_in_shards"] for s in (one, two))
    assert one["solver"] == two["solver"]
    np.testing.assert_allclose(one["Z"], two["Z"], rtol=0, atol=1e-8)


def test_all_ranks_hear_of_a_failure(found):
    one, two = (each["endings"] for each in found)
    assert one["rank 0"] == ["ValueError: refused by rank 0"]
    assert two["rank 0"] == [*one["rank 0"], "LeaderEndedError: rank 0 has ended with an error of its own."]
    assert one["one of them"] == ["nothing"]
    assert len(set(two["one of them"])) == 1
    assert two["one of them"][0].startswith("FailedTogetherError: 2 ranks are more than the 1 rows")
    assert one["late"] == ["nothing"]
    assert "the other ranks have ended" in two["late"][0]


def test_targets_are_those_of_the_whole_table(found):
    expected = [[guess_task(column), target_values(column, guess_task(column)).tolist()] for column in target_columns()]
    for each, kind in zip(found, ("ValueError", "FailedTogetherError"), strict=True):
        assert each["targets"][: len(expected)] == expected
        sentence = "the target 'lost' is missing in 1 of 3 rows; drop those rows."
        assert each["targets"][len(expected)] == [kind, sentence]
    assert [each["targets"][-2:] for each in found] == [[["mixed", False]] * 2, [["mixed", True], ["mixed", False]]]


def test_nothing_is_pickled():
    rooms = [Path(bidual.__file__).parent / name for name in ("distributed", "training/layerwise")]
    for source in [path for room in rooms for path in room.glob("*.py")]:
        text = source.read_text()
        assert "pickle" not in text.replace("unpickled", "")
        assert not re.search(r"_object\b|_object_list|torch\.load|torch\.save\(", text.replace("safetensors.torch", ""))


def test_a_time_limit_ends_all_ranks(found):
    assert [each["limited"] for each in found] == ["MAX_TIME", "MAX_TIME"]


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_shards_are_the_whole_table(found, folder, name):
    whole = read_table(folder / name)
    for each in found:
        shards = each["shards"][name]
        read = pd.read_json(io.StringIO(shards["frame"]), dtype=dict.fromkeys(whole.columns, False))
        assert json.loads(read.to_json()) == json.loads(
            pd.read_json(io.StringIO(whole.to_json()), dtype=False).to_json()
        )
        assert_same_encoder(shards["encoder"], TableEncoder().fit(whole).to_json())
    assert found[1]["shards"][name]["sizes"] == [41, 42]
    assert found[1]["shards"][name]["mixed"] == (["code"] if name.endswith("csv") else [])


def test_arrays_are_read_in_shards(found, folder):
    whole = np.load(folder / "array.npy")
    expected = [{"mean": float(m), "scale": float(s)} for m, s in zip(whole.mean(0), whole.std(0), strict=True)]
    for each in found:
        np.testing.assert_array_equal(each["shards"]["array.npy"], whole)
        for column, k in zip(each["shards"]["array encoder"], (0, 2), strict=True):
            assert column["name"] == str(k)
            assert (column["mean"], column["scale"]) == pytest.approx(tuple(expected[k].values()), abs=1e-12)


def test_gates_are_those_of_one_process(found):
    expected = sample_gates(data()[0], 30, torch.Generator().manual_seed(7), bias=True)
    for each in found:
        np.testing.assert_allclose(each["shards"]["gates"], expected, rtol=1e-12, atol=1e-12)


def assert_same_encoder(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            assert one[key] == (pytest.approx(value, rel=1e-12, abs=1e-14) if isinstance(value, float) else value)
