"""`bidual fit --distributed` as torchrun would start one rank, in this process."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

from bidual.distributed import Ranks
from bidual.distributed.fitting import Data, fit_shards
from bidual.distributed.rows import RowsInMemory
from bidual.estimators.mlp import ConvexMLPClassifier
from bidual.estimators.saving import read
from bidual.problems.problem import Problem
from bidual.runtime import torchrun
from bidual.runtime.ranks import ALONE
from helpers.cli_tools import refused, run
from helpers.launching import write_tables

GATED = ("--distributed", "--activation", "gated_relu", "--n-gates", 15, "--beta", "auto")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    write_tables(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_the_same_model_as_without_it(folder, name):
    printed = []
    for options in (GATED, GATED[1:]):
        options = (*options, "--target", "label", "--loss", "log_loss", "--out", folder / "model.safetensors", "--json")
        code, out, err = run("fit", folder / name, *options)
        assert (code, err) == (0, "")
        printed.append(json.loads(out))
    for key in ("beta", "primal", "train_accuracy"):
        assert printed[0][key] == pytest.approx(printed[1][key], rel=1e-6)
    assert printed[0]["relative_gap"] <= 1e-4


def test_classes_are_weighted(folder):
    model, frame = folder / "model.safetensors", pd.read_csv(folder / "table.csv")
    options = (*GATED, "--target", "label", "--class-weight", "balanced", "--out", model)
    assert run("fit", folder / "table.csv", *options).code == 0
    estimator, encoder = read(model).estimator, read(model).encoder
    X = torch.tensor(encoder.transform(frame.drop(columns="label")).to_numpy())
    Y = torch.tensor(estimator._encode_targets(frame["label"].to_numpy()))
    weight = torch.tensor(compute_sample_weight("balanced", frame["label"]))
    rows = estimator.architecture_.lift(X, Y.shape[1]), estimator.architecture_.gauge(), estimator.beta_
    weighted, plain = (Problem(rows[0], estimator._datafit(Y, each), *rows[1:]) for each in (weight, None))
    assert estimator.certificate_.recheck(weighted)
    assert not estimator.certificate_.recheck(plain)


def test_rows_of_no_weight_are_refused(folder):
    estimator = ConvexMLPClassifier(activation="gated_relu", class_weight={0: 0})
    data = Data(RowsInMemory(torch.randn(6, 2, dtype=torch.float64)), ["a", "b"], np.array([0, 1, 2, 0, 1, 2]))
    with pytest.raises(ValueError, match="class of weight 0 cannot be left out across ranks; drop them"):
        fit_shards(estimator, data, ALONE)


def test_an_array_on_disk(folder):
    model = folder / "model.safetensors"
    code, out, err = run("fit", folder / "array.npy", *GATED, "--target", "-1", "--out", model)
    assert (code, err) == (0, "")
    assert "83 rows on 1 rank; 2 columns" in out
    X = np.load(folder / "array.npy")
    saved = read(model)
    frame = pd.DataFrame(X[:, :2], columns=["0", "1"])
    R2 = saved.estimator.score(saved.encoder.transform(frame), X[:, 2])
    assert f"{R2:.4f}" in out


def test_refusals_are_one_sentence(folder, monkeypatch):
    table, out = folder / "table.csv", ("--out", folder / "model.safetensors", "--target", "label")
    assert refused("only", "fit", table, *out, "--checkpoint", folder / "c")
    assert refused("add --activation gated_relu", "fit", table, *out, "--distributed", "--beta", "auto")
    assert refused("--beta auto, or a number", "fit", table, *out, *GATED[:3])
    assert refused("no such file", "fit", folder / "nothing.csv", *out, *GATED)
    assert refused("number of a column", "fit", folder / "array.npy", *out, *GATED)
    assert refused("did you mean", "fit", table, "--out", folder / "m", "--target", "labels", *GATED)
    (folder / "short.csv").write_text("a,label\n")
    assert refused("too few for 1 ranks", "fit", folder / "short.csv", *out, *GATED)
    assert refused("cpu or cuda (one GPU for each rank), got 'tpu'", "fit", table, *out, *GATED, "--device", "tpu")
    if not torch.cuda.is_available():
        assert refused("torch finds no GPU on this machine", "fit", table, *out, *GATED, "--device", "cuda")
    monkeypatch.setenv("BIDUAL_TIMEOUT", "soon")
    assert refused("BIDUAL_TIMEOUT must be a number of seconds above zero, got 'soon'", "fit", table, *out, *GATED)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("BIDUAL_TIMEOUT")
    assert refused("started by torchrun", "fit", table, *out, *GATED)
    assert not (folder / "model.safetensors").exists()


def test_a_checkpoint_is_where_a_second_run_starts(folder):
    model, kept = folder / "model.safetensors", folder / "kept.safetensors"
    options = (*GATED, "--target", "label", "--out", model, "--checkpoint", kept, "--solver", "fista", "--tol", 0.01)
    for _ in range(2):
        assert run("fit", folder / "table.csv", *options).code == 0
    assert read(model).estimator.history_[0].relative_gap <= 0.02
    assert refused("of another run", "fit", folder / "table.csv", *options, "--seed", 5)


@pytest.mark.parametrize("local", [0, 1, 2])
def test_every_rank_takes_the_gpu_of_its_number(local, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", str(local))
    if local < 2:
        assert torchrun._place("cuda") == torch.device("cuda", local)
        return
    with pytest.raises(ValueError, match="3 ranks are more than the 2 GPUs of this machine; start at most 2 here"):
        torchrun._place("cuda")


def test_tensors_on_gpus_have_a_group_of_their_own():
    ranks = Ranks(0, 2, gpus="NCCL")
    assert ranks._group(torch.ones(1)) is None
    assert ranks._group(SimpleNamespace(is_cuda=True)) == "NCCL"
