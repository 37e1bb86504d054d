"""Two ranks and one process grow the same network; a rank that is killed ends the run, which can be gone on with."""

import json
import os
import signal
import subprocess
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import bidual
from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.distributed import Ranks
from bidual.estimators.layerwise_checks import check_ranks
from bidual.training.layerwise import Checkpoint, LayerwiseTrainer
from bidual.training.layerwise.checkpoint import TENSORS
from bidual.training.layerwise.inputs import FreshInputs, KeptInputs, Moves, inputs_of
from bidual.training.layerwise.stage_descent import StageDescent
from bidual.training.layerwise.trainer import draw
from helpers.cli_tools import refused, run
from helpers.launching import made_once, rank_of, torchrun, wait_for, wait_for_end
from helpers.places import BENCHMARKS, HELPERS
from helpers.small_images import bars, settings
from helpers.together import CASES, N, grown, in_double

SMALL = ("--stages", 2, "--n-gates", 3, "--epochs", 100, "--batch-size", 5, "--no-flip", "--crop", 0)
SMALL += ("--learning-rate", 0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two ranks have written."""
    script = HELPERS / "together.py"
    return made_once(
        tmp_path_factory, "together", lambda folder: torchrun(2, script, folder).communicate(timeout=300)[1]
    )


@pytest.fixture(scope="module")
def found(folder):
    assert (folder / "found.json").exists(), (folder / "done").read_text()
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_network_is_that_of_one_process(folder, found, case, monkeypatch):
    """Over three stages, in float64: with shares that are not even, and a last batch of which one rank has nothing."""
    in_double(monkeypatch.setattr)
    alone, together = grown(case, Ranks()), load_file(folder / f"{case}.safetensors")
    for name, value in alone.network.state_dict().items():
        torch.testing.assert_close(together[name], value, rtol=1e-9, atol=1e-9, msg=name)
    assert found[case]["rates"] == list(alone.rates)
    for mine, other in zip(found[case]["history"], map(astuple, alone.history), strict=True):
        assert mine[:3] == list(other[:3])
        assert mine[3:5] == pytest.approx(other[3:5], rel=1e-9)


def test_all_ranks_have_the_same_network(found):
    for case in CASES:
        assert len(set(found[case]["digests"])) == 1
    (weights, gaps), (other, none) = found["estimated"]
    assert weights == other
    assert (len(gaps), none) == (2, [])
    assert all(0 < gap <= 1 for gap in gaps)


def test_resumed_by_as_many_ranks_bit_for_bit(found):
    assert found["resumed"] is True


def test_checkpoint_of_two_ranks_is_gone_on_with_by_one(folder, monkeypatch):
    in_double(monkeypatch.setattr)
    trainer = LayerwiseTrainer(settings(crop=1), *bars(N), 3)
    whole, resumed = trainer.run(), trainer.run(Checkpoint.read(folder))
    assert [(r.stage, r.epoch) for r in resumed.history] == [(r.stage, r.epoch) for r in whole.history]
    for name, value in whole.network.state_dict().items():
        torch.testing.assert_close(resumed.network.state_dict()[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_refusals_are_those_of_all_ranks(found):
    for refusals in found["refusals"]:
        assert refusals[0].startswith("FailedTogetherError: 2 ranks cannot share batches of 1 images; start at most 1")
        assert refusals[1].startswith("FailedTogetherError: rank 1 has other images or settings than rank 0: sha256")


@pytest.mark.parametrize("kept", [False, True])
def test_shares_make_up_the_batch(kept):
    """Rows, inputs and gates of three ranks, in some order, are those of one process; so are the random numbers."""
    images, _ = bars()
    stage, head = GatedStage(2, 3, 2, 1, 3, True), Head(6, 2, 3)
    draw(stage, head, torch.Generator().manual_seed(0))
    chosen = settings() if kept else settings(crop=2, flip=True)
    rows, states, shares = torch.tensor([5, 59, 0, 22, 21, 7, 40]), [], []
    for rank in (Ranks(), *(Ranks(k, 3) for k in range(3))):
        generator = torch.Generator().manual_seed(1)
        inputs = inputs_of(images, lambda x: x, stage, chosen, torch.device("cpu"), rank, kept)
        shares.append((inputs.own(rows), *inputs.batch(rows, generator)))
        states.append(generator.get_state())
        assert isinstance(inputs, KeptInputs if kept else FreshInputs)
    whole, parts = shares[0], [torch.cat(part) for part in zip(*shares[1:], strict=True)]
    order = [parts[0].tolist().index(row) for row in whole[0].tolist()]
    assert len(parts[0]) == len(rows)
    for mine, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(mine[order], other, rtol=1e-6, atol=1e-6)
    assert all(torch.equal(state, states[0]) for state in states)


def test_moves_of_some_are_those_of_all():
    x = torch.rand(7, 2, 6, 5)
    moves = Moves.drawn(7, 2, True, torch.Generator().manual_seed(3))
    assert torch.equal(moves.of(slice(2, 5))(x[2:5]), moves(x)[2:5])
    assert moves.of(slice(3, 3))(x[3:3]).shape == (0, 2, 6, 5)


def test_parameters_that_ranks_cannot_share():
    def refusal(ranks: Ranks, **changes: object) -> str:
        with pytest.raises(ValueError, match=r"^.*$") as caught:
            check_ranks(bidual.LayerwiseCNNClassifier(**changes), ranks)
        return str(caught.value)

    assert "use device='cuda', got 'cuda:1'" in refusal(Ranks(0, 2), device="cuda:1")
    assert "use torchrun_ranks(device='cuda'), or device='cpu'" in refusal(Ranks(0, 2), device="cuda")
    check_ranks(bidual.LayerwiseCNNClassifier(device="cuda:1"), Ranks())


def test_more_ranks_than_images_are_refused(monkeypatch):
    trainer = LayerwiseTrainer(settings(), *bars(3), 3, ranks=Ranks(0, 4))
    with pytest.raises(ValueError, match="4 ranks cannot share batches of 3 images; start at most 3"):
        trainer._compare([trainer.configuration] * 4)


def test_errors_of_training_are_not_taken_for_a_lost_rank():
    with pytest.raises(RuntimeError, match="out of memory"), Ranks(0, 2).communicating("adding gradients"):
        raise RuntimeError("out of memory")
    message = "rank 1 of 2 lost another rank while adding gradients .its connection closed"
    with pytest.raises(bidual.distributed.LostRankError, match=message), Ranks(1, 2).communicating("adding gradients"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")


class Broken(Ranks):
    """Whose engine has lost the others when gradients are put in order, before a forward pass."""

    def parallel(self, module):
        def forward(*_):
            raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")

        return forward


def test_a_rank_that_is_lost_in_a_forward_pass():
    images, labels = bars()
    stage, head = GatedStage(2, 3, 2, 1, 3, True), Head(6, 2, 3)
    inputs = inputs_of(images, lambda x: x, stage, settings(), torch.device("cpu"), keep=True)
    descent = StageDescent(stage, head, inputs, labels, settings(), Broken(0, 2))
    with pytest.raises(bidual.distributed.LostRankError, match="rank 0 of 2 lost another rank while agreeing"):
        descent.epoch(descent.optimiser(0.1), torch.Generator())


@pytest.fixture
def pictures(tmp_path):
    """Twelve grey 8 x 8 images of each of two classes: bright on the left, bright on the right."""
    rng = np.random.default_rng(0)
    for name, half in (("left", slice(0, 4)), ("right", slice(4, 8))):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for k in range(12):
            pixels = rng.integers(0, 60, (8, 8), dtype=np.uint8)
            pixels[:, half] += 180
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{k}.png")
    return tmp_path / "pictures"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found in /proc")
@pytest.mark.parametrize("loss", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_lost_rank_ends_the_command_and_one_process_goes_on(loss, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("BIDUAL_TIMEOUT", "5")
    model, steps = tmp_path / "model.safetensors", tmp_path / "steps"
    arguments = ("train-images", pictures, *SMALL, "--out", model, "--checkpoint", steps)
    ranks = torchrun(2, "-m", "bidual", *arguments, "--distributed")
    wait_for(steps / TENSORS)
    left, lost = (rank_of(ranks.pid, rank) for rank in (0, 1))
    os.kill(lost, loss)
    wait_for_end(left, 60)
    if loss is signal.SIGSTOP:
        os.kill(lost, signal.SIGKILL)
    out, errors = ranks.communicate(timeout=60)
    assert out == ""
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert lines[0].startswith("error: rank 0 of 2 ")
    assert "exitcode  : 2 " in errors
    assert not model.exists()
    reached = Checkpoint.read(steps)
    assert (reached.stage, reached.epoch) < (2, 100)
    resumed = run(*arguments, "--resume", "--json", "--quiet")
    assert resumed.code == 0, resumed.err
    report = json.loads(resumed.out)
    assert report["ranks"] == 1
    assert report["stages"][-1]["train_accuracy"] == 1.0
    assert len(report["certificates"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--batch-size", 1), ("--device", "tpu"), ("--learning-rate", 1e30)])
def test_what_all_ranks_refuse_is_said_by_rank_0_alone(option, pictures, tmp_path):
    arguments = ("train-images", pictures, *SMALL, "--quiet", "--out", tmp_path / "model", *option)
    with torchrun(2, "-m", "bidual", *arguments, "--distributed") as ranks:
        out, errors = ranks.communicate(timeout=120)
    assert out == ""
    assert errors.count("error: ") == 1
    assert errors.count("exitcode  : 2 ") >= 1
    assert not (tmp_path / "model").exists()


def test_one_rank_is_an_ordinary_command(pictures, tmp_path, monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    few = (*SMALL, "--epochs", 2, "--quiet")
    for name, more in (("a", ()), ("b", ("--distributed",))):
        done = run("train-images", pictures, *few, "--out", tmp_path / name, *more)
        assert (done.code, done.err) == (0, "")
    one, other = (load_file(tmp_path / name) for name in "ab")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    arguments = ("train-images", pictures, *few, "--out", tmp_path / "c", "--distributed")
    assert refused("cpu or cuda (one GPU for each rank), got 'cuda:1'", *arguments, "--device", "cuda:1")
    monkeypatch.delenv("RANK")
    assert refused("started by torchrun", *arguments)
    assert not (tmp_path / "c").exists()


def test_the_benchmark_counts_what_is_sent(monkeypatch):
    """N = m P (k^2 C + 1) + (m P a^2 + 1) c numbers of four bytes; failures are kept."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import layerwise_ranks as benchmark

    found = benchmark.work(benchmark.Job(1, False, gates=2, images=16, epochs=1), Ranks())
    assert found["gradient_bytes"] == [4 * (2 * (9 * C + 1) + (2 * 4 + 1) * 10) for C in (4, 2, 8)]
    assert all(seconds > 0 for seconds in found["seconds"] + found["processor_seconds"])
    assert f"{found['loss']:.5f}" in benchmark.line(found)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 3))
    assert "exit code 3" in benchmark.line(benchmark.launch("a script", benchmark.jobs(True)[0], Path("nowhere")))
