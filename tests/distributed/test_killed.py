"""A rank that is killed: the others say so and end, and the run can be gone on with."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import bidual
from bidual.distributed.fitting import Checkpoint, CheckpointWriter
from bidual.estimators import ConvexMLPClassifier
from bidual.estimators.saving import read
from bidual.io.tables import TableEncoder, read_table
from bidual.problems.certificate import Certificate
from helpers.launching import rank_of, torchrun, wait_for, write_tables

FIT = ("--distributed", "--activation", "gated_relu", "--n-gates", 20, "--beta", "auto", "--target", "label")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found in /proc")
def test_a_killed_rank_ends_the_run_and_its_checkpoint_is_gone_on_with(tmp_path):
    write_tables(tmp_path)
    table, model, kept = (tmp_path / name for name in ("table.csv", "model.safetensors", "kept.safetensors"))
    arguments = ("-m", "bidual", "fit", table, *FIT, "--out", model, "--checkpoint", kept)
    run = torchrun(2, *arguments, "--solver", "primal_dual", "--tol", 1e-15)
    wait_for(kept)
    os.kill(rank_of(run.pid, 1), signal.SIGKILL)
    killed = time.monotonic()
    _, errors = run.communicate(timeout=60)
    assert run.returncode != 0
    assert time.monotonic() - killed < 60
    assert_rank_0_says_why_it_ended(errors)
    assert not model.exists()
    run = torchrun(2, *arguments)
    out, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    assert out.count("certificate") == 1
    assert_is_the_model_of_one_process(model, table)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found in /proc")
def test_torchrun_starts_a_killed_run_again_from_its_checkpoint(tmp_path):
    write_tables(tmp_path)
    table, model, kept = (tmp_path / name for name in ("table.csv", "model.safetensors", "kept.safetensors"))
    arguments = ("-m", "bidual", "fit", table, *FIT, "--out", model, "--checkpoint", kept)
    run = torchrun(2, "--max-restarts", 1, *arguments, "--solver", "primal_dual", "--tol", 1e-5)
    wait_for(kept)
    os.kill(rank_of(run.pid, 1), signal.SIGKILL)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    assert_rank_0_says_why_it_ended(errors)
    assert_is_the_model_of_one_process(model, table)


def assert_rank_0_says_why_it_ended(errors: str) -> None:
    sentences = ("rank 0 of 2 lost another rank while", "rank 0 of 2 was ended by torchrun")
    assert any(sentence in errors for sentence in sentences), errors


def assert_is_the_model_of_one_process(model, table):
    saved, frame = read(model), read_table(table)
    X, y = frame.drop(columns="label"), frame["label"].to_numpy()
    encoder = TableEncoder().fit(X)
    alone = ConvexMLPClassifier(activation="gated_relu", n_gates=20).fit(encoder.transform(X), y)
    assert saved.estimator.certificate_.relative_gap <= 1e-4
    assert saved.estimator.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=2e-4)
    assert saved.estimator.beta_ == pytest.approx(alone.beta_, rel=1e-9)
    assert (bidual.load(model).predict(saved.encoder.transform(X)) == alone.predict(encoder.transform(X))).mean() > 0.97


def certificate(gap: float) -> Certificate:
    return Certificate(1.0, 1.0 - gap, torch.ones(2, 3, 1), torch.ones(4, 1), 0.5)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    path, about = tmp_path / "kept.safetensors", {"rows": 4}
    assert Checkpoint.read(path, about) is None
    CheckpointWriter(path, about)(certificate(0.25))
    found = Checkpoint.read(path, about)
    assert found.relative_gap == 0.25
    np.testing.assert_array_equal(found.point, np.ones((2, 3, 1)))
    with pytest.raises(ValueError, match="another run"):
        Checkpoint.read(path, {"rows": 5})
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="is not a checkpoint of a distributed fit file, or is cut off"):
        Checkpoint.read(path, about)


def test_a_checkpoint_of_format_1_is_refused_by_its_version(tmp_path):
    story = {"format": 1, "configuration": {"rows": 4}, "relative_gap": 0.5}
    tensors = {"point": torch.ones(2, 3, 1), "dual_point": torch.ones(4, 1)}
    save_file(tensors, tmp_path / "old.safetensors", {"bidual-distributed": json.dumps(story)})
    with pytest.raises(ValueError, match=r"has checkpoint of a distributed fit format 1, .* reads format 2"):
        Checkpoint.read(tmp_path / "old.safetensors", {"rows": 4})


def test_checkpoints_are_not_written_too_often(tmp_path):
    path = tmp_path / "kept.safetensors"
    seldom, always = CheckpointWriter(path, {}, every=1000), CheckpointWriter(path, {}, every=0)
    for gap, kept in ((0.5, 0.5), (0.375, 0.5), (0.25, 0.25)):
        seldom(certificate(gap))
        assert Checkpoint.read(path, {}).relative_gap == kept
    for gap in (0.25, 0.1875):
        always(certificate(gap))
        assert Checkpoint.read(path, {}).relative_gap == gap
