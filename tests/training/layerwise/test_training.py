import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.training.layerwise import Checkpoint, EpochRecord, LayerwiseResult, LayerwiseTrainer
from bidual.training.layerwise.checkpoint import STORY, TENSORS, check_folder
from bidual.training.layerwise.inputs import FreshInputs, KeptInputs, inputs_of
from bidual.training.layerwise.stage_descent import StageDescent
from bidual.training.layerwise.trainer import draw
from helpers.places import HELPERS
from helpers.small_images import bars, settings


class Stop(Exception):
    pass


def same(a: LayerwiseResult, b: LayerwiseResult) -> bool:
    left, right = a.network.state_dict(), b.network.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("changes", [{}, {"crop": 1, "flip": True}, {"units": 2}, {"rates": None}, {"momentum": 0.0}])
@pytest.mark.parametrize("at", [(1, 2), (1, 3), (2, 1), (3, 2)])
def test_resumed_training_ends_bit_for_bit_the_same(tmp_path: Path, changes: dict, at: tuple[int, int]) -> None:
    images, labels = bars()
    trainer = LayerwiseTrainer(settings(**changes), images, labels, 3)

    def stop(record: EpochRecord) -> None:
        if (record.stage, record.epoch) == at:
            raise Stop

    with pytest.raises(Stop):
        trainer.watched(stop, tmp_path).run()
    whole, resumed = trainer.run(), trainer.run(Checkpoint.read(tmp_path))
    assert same(whole, resumed)
    assert [replace(r, seconds=0.0) for r in whole.history] == [replace(r, seconds=0.0) for r in resumed.history]


def test_killed_training_loses_at_most_an_epoch_and_ends_the_same(tmp_path: Path) -> None:
    script = HELPERS / "kill_me.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    checkpoint = Checkpoint.read(tmp_path)
    assert (checkpoint.stage, checkpoint.epoch) == (2, 1)
    trainer = LayerwiseTrainer(settings(crop=1), *bars(), 3)
    assert same(trainer.run(), trainer.run(checkpoint))


def test_checkpoint_tells_its_story_and_its_configuration(tmp_path: Path) -> None:
    images, labels = bars()
    LayerwiseTrainer(settings(), images, labels, 3, folder=tmp_path).run()
    story = json.loads((tmp_path / STORY).read_text())
    assert len(story["history"]) == 9
    last = Checkpoint.read(tmp_path)
    last.check(LayerwiseTrainer(settings(), images, labels, 3).configuration, tmp_path)
    with pytest.raises(ValueError, match=r"another configuration: gates 4 instead of 5, epochs 3 instead of 9; train"):
        last.check(LayerwiseTrainer(settings(gates=5, epochs=9), images, labels, 3).configuration, tmp_path)
    changed = images.clone()
    changed[0, 0, 0, 0] += 1
    with pytest.raises(ValueError, match="sha256"):
        last.check(LayerwiseTrainer(settings(), changed, labels, 3).configuration, tmp_path)


def test_finished_training_resumes_to_itself(tmp_path: Path) -> None:
    trainer = LayerwiseTrainer(settings(), *bars(), 3, folder=tmp_path)
    assert same(trainer.run(), trainer.run(Checkpoint.read(tmp_path)))


def test_a_checkpoint_of_format_1_is_refused_by_its_version(tmp_path: Path) -> None:
    save_file({"generator": torch.zeros(2)}, tmp_path / TENSORS, {"bidual-checkpoint": json.dumps({"format": 1})})
    with pytest.raises(ValueError, match=r"has checkpoint format 1, this is bidual .* reads format 2"):
        Checkpoint.read(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"no safetensors at all", None])
def test_broken_checkpoint_is_refused(tmp_path: Path, raw: bytes | None) -> None:
    LayerwiseTrainer(settings(), *bars(), 3, folder=tmp_path).run()
    whole = (tmp_path / TENSORS).read_bytes()
    (tmp_path / TENSORS).write_bytes(whole[: len(whole) // 2] if raw is None else raw)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is not a checkpoint file, or is cut off"):
        Checkpoint.read(tmp_path)


def test_folder_is_neither_overwritten_nor_imagined(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .* to resume; train without resume first"):
        check_folder(tmp_path, resume=True)
    (tmp_path / TENSORS).write_bytes(b"")
    with pytest.raises(FileExistsError, match="holds a checkpoint; resume it, delete it"):
        check_folder(tmp_path, resume=False)
    with pytest.raises(NotADirectoryError, match="is a file; give the name of a folder"):
        check_folder(tmp_path / TENSORS, resume=False)


@pytest.mark.parametrize("at", [(1, 2), (2, 1), (3, 3)])
def test_interrupt_keeps_the_best_so_far(at: tuple[int, int]) -> None:
    def interrupt(record: EpochRecord) -> None:
        if (record.stage, record.epoch) == at:
            raise KeyboardInterrupt

    grown = LayerwiseTrainer(settings(), *bars(), 3, on_epoch=interrupt).run()
    assert grown.reason == "interrupted"
    assert len(grown.rates) == len(grown.network.stages)
    last = {record.stage: record.loss for record in grown.history}
    behind = at[0] > 1 and last[at[0]] > last[at[0] - 1]
    assert len(grown.network.stages) == at[0] - behind
    assert bool(torch.isfinite(grown.network(bars()[0])).all())


def test_interrupt_before_the_first_epoch_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StageDescent, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LayerwiseTrainer(settings(), *bars(), 3).run()


def test_every_stage_learns() -> None:
    """On images that a row or a column tells apart, the network ends nearly perfect, and not by chance."""
    images, labels = bars(300)
    grown = LayerwiseTrainer(settings(gates=8, epochs=12, drop_every=8), images, labels, 3).run()
    new, truth = bars(150, seed=1)
    with torch.no_grad():
        accuracy = float((grown.network(new).argmax(1) == truth).double().mean())
    assert accuracy > 0.9
    for stage in (1, 2, 3):
        losses = [record.loss for record in grown.history if record.stage == stage]
        assert losses[-1] < losses[0]


def test_earlier_stages_are_frozen() -> None:
    kept: list[dict[str, Tensor]] = []
    trainer = LayerwiseTrainer(
        settings(), *bars(), 3, on_stage=lambda _, network: kept.append(network.upto(1).state_dict())
    )
    first = {name: value.clone() for name, value in trainer.run().network.upto(1).state_dict().items()}
    assert all(torch.equal(value, kept[0][name]) for name, value in first.items())


def test_kept_inputs_are_the_fresh_ones() -> None:
    images, _ = bars()
    stage, head = GatedStage(2, 3, 2, 1, 3, True), Head(6, 2, 3)
    draw(stage, head, torch.Generator().manual_seed(0))
    kept = inputs_of(images, lambda x: x, stage, settings(), torch.device("cpu"))
    assert isinstance(kept, KeptInputs)
    fresh = FreshInputs(images, lambda x: x, stage, settings(), torch.device("cpu"))
    rows, generator = torch.tensor([5, 59, 0]), torch.Generator()
    for mine, other in zip(kept.batch(rows, generator), fresh.batch(rows, generator), strict=True):
        assert torch.equal(mine, other)


def test_gradient_is_that_of_the_objective_that_is_certified() -> None:
    """SGD descends on mean loss + weight_decay/2 |.|^2 without the output's bias: one full-batch step by hand."""
    images, labels = bars()
    chosen = settings(batch_size=60, momentum=0.0, weight_decay=0.3)
    stage, head = GatedStage(2, 3, 2, 1, 3, True), Head(6, 2, 3)
    draw(stage, head, torch.Generator().manual_seed(0))
    inputs = inputs_of(images, lambda x: x / 255, stage, chosen, torch.device("cpu"))
    descent = StageDescent(stage, head, inputs, labels, chosen)
    priced = [*stage.hidden.parameters(), head.output.weight]
    every = [*priced, head.output.bias]
    before = [p.detach().clone() for p in every]
    loss = torch.nn.functional.cross_entropy(head(stage(images / 255.0)), labels)
    slopes = torch.autograd.grad(loss + 0.15 * sum(p.square().sum() for p in priced), every)
    descent.epoch(descent.optimiser(0.01), torch.Generator().manual_seed(1))
    for parameter, start, slope in zip(every, before, slopes, strict=True):
        torch.testing.assert_close(parameter.detach(), start - 0.01 * slope, rtol=1e-4, atol=1e-6)


def test_automatic_rate_avoids_divergence() -> None:
    """Weight decay that flings weights away at rate 0.3 leaves only the smaller rates."""
    grown = LayerwiseTrainer(settings(rates=None, weight_decay=50.0, trial=20), *bars(), 3).run()
    assert max(grown.rates) < 0.3


def test_diverging_training_says_so() -> None:
    with pytest.raises(FloatingPointError, match="stage 1 diverges at learning rate 1e\\+06; give a smaller one"):
        LayerwiseTrainer(settings(rates=(1e6, 0.1, 0.1)), *bars(), 3).run()


def test_later_stage_that_diverges_leaves_the_stages_before_it() -> None:
    grown = LayerwiseTrainer(settings(rates=(0.1, 1e9, 0.1)), *bars(), 3).run()
    assert "stage 2 diverges at learning rate 1e+09" in grown.reason
    assert len(grown.network.stages) == 1


def test_rate_is_tried_over_several_passes_of_few_images() -> None:
    """With one batch an epoch a single pass would see the same loss at every rate."""
    images, labels = bars(12)
    few = settings(batch_size=16, trial=12, weight_decay=30.0, rates=None)
    assert max(LayerwiseTrainer(few, images, labels, 3).run().rates) < 0.1


def test_resumed_training_keeps_what_the_first_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much memory is free the second time: batches of another size round differently."""
    images, labels = bars(65)
    trainer = LayerwiseTrainer(settings(), images, labels, 3)

    def stop(record: EpochRecord) -> None:
        if (record.stage, record.epoch) == (2, 1):
            raise Stop

    with pytest.raises(Stop):
        trainer.watched(stop, tmp_path).run()
    whole = trainer.run()
    seen = []
    monkeypatch.setattr("bidual.training.layerwise.trainer.inputs_of", lambda *a: seen.append(a[-1]) or inputs_of(*a))
    assert same(whole, trainer.run(Checkpoint.read(tmp_path)))
    assert seen == [True, None]


def test_rates_must_match_the_stages() -> None:
    with pytest.raises(ValueError, match="3 stages need as many learning rates, got 2"):
        settings(rates=(0.1, 0.1))
