import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.gauges import Nuclear
from bidual.io.datasets import ImageData
from bidual.papers.experiments import bm_figure_6, stage_costs
from bidual.papers.experiments.bm_figure_6 import CONFIGURATIONS, Configuration, Row, measured, paper_needs
from bidual.papers.experiments.convex_stage import ConvexDescent, ConvexStage, LiftedHead, design, load_filters
from bidual.papers.experiments.stage_costs import Cost, Form, Measurement, StageShape, needs, stage_shapes
from bidual.runtime.memory import human_bytes
from bidual.training.layerwise import Settings
from bidual.training.layerwise.certificates import lifted_point
from bidual.training.layerwise.inputs import KeptInputs
from bidual.training.layerwise.stage_descent import StageDescent
from bidual.training.layerwise.trainer import draw

OUTPUTS = 3
SETTINGS = Settings(gates=4, downsample=(True, True, False), batch_size=8, crop=1)
FACTORED = Form("factored, m = 2", "factored", 2)
CONVEX = Form("convex", "design", 4 * OUTPUTS, prox=True)
BY_CONVOLUTION = Form("convex, by convolution", "convolution", 4 * OUTPUTS)


def batch(n: int = 8, channels: int = 2, side: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, channels, side, side), generator=generator, dtype=torch.uint8)
    return images, torch.arange(n) % OUTPUTS


def shapes_of(form: Form, count: int) -> list[StageShape]:
    return stage_shapes(form, replace(SETTINGS, factors=form.factors), 2, 16, OUTPUTS)[:count]


def descent_of(form: Form, count: int) -> StageDescent | ConvexDescent:
    return Measurement(form, shapes_of(form, count), *batch(), "cpu", 1).descent(torch.Generator().manual_seed(0))


def a_stage(side: int = 6, factors: int = 2) -> tuple[GatedStage, Head, Tensor, Tensor]:
    """In double precision, with inputs and gates; a side of 5 has windows that overlap."""
    generator = torch.Generator().manual_seed(1)
    stage = GatedStage(2, 3, factors, 1, 3, downsample=False)
    head = Head(stage.channels, 2, OUTPUTS)
    draw(stage, head, generator)
    stage.hidden.bias.data.normal_(generator=generator)  # type: ignore[union-attr]
    head.output.bias.data.normal_(generator=generator)
    x = torch.randn(7, 2, side, side, generator=generator, dtype=torch.float64)
    stage, head = stage.double(), head.double()
    return stage, head, x.contiguous(memory_format=torch.channels_last), stage.activity(x)


def convex_of(stage: GatedStage, head: Head) -> ConvexStage:
    model = ConvexStage.zero(stage, head.grid, OUTPUTS)
    model.put(lifted_point(stage, head).detach())
    model.bias.data.copy_(head.output.bias)
    return model


@pytest.mark.parametrize("side", [5, 6])
def test_convex_form_predicts_what_its_factors_do(side: int) -> None:
    """At Z_k = U_k V_k^T (BM eq. 130)."""
    stage, head, x, on = a_stage(side)
    model = convex_of(stage, head)
    outputs = head(stage.gated(x, on))
    torch.testing.assert_close(model.outputs(x, on), outputs)
    torch.testing.assert_close(model.lifted, lifted_point(stage, head).detach())


@pytest.mark.parametrize("side", [5, 6])
def test_convolution_with_a_fixed_head_is_the_convex_form_too(side: int) -> None:
    stage, head, x, on = a_stage(side)
    wide = GatedStage(2, 3, 4 * OUTPUTS, 1, 3, downsample=False).double()
    load_filters(wide, lifted_point(stage, head).detach())
    fixed = LiftedHead(wide.channels, 2, OUTPUTS).double()
    expected = head(stage.gated(x, on)) - head.output.bias
    torch.testing.assert_close(fixed.of_pooled(wide.pooled(x, on, 2)), expected)


def test_convex_stage_hands_on_every_column() -> None:
    """{D_k X_i Z_k^(c')}: P a c channels (BM 4.2)."""
    stage, head, x, on = a_stage()
    wide, Z = GatedStage(2, 3, 4 * OUTPUTS, 1, 3, downsample=False).double(), lifted_point(stage, head).detach()
    load_filters(wide, Z)
    patches = functional.pad(functional.unfold(x, 3, padding=1), (0, 0, 0, 1), value=1.0)
    expected = torch.einsum("nhq,khj->njkq", patches, Z) * on.flatten(2)[:, None]
    torch.testing.assert_close(wide.gated(x, on).flatten(2), expected.flatten(1, 2))


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_gradient_is_that_of_autograd(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(ConvexStage, "at_once", at_once)
    stage, head, x, on = a_stage()
    model, y = convex_of(stage, head), torch.arange(7) % OUTPUTS
    loss, hits = model.slope(x, on, y)
    logits = model.outputs(x, on)
    slopes = torch.autograd.grad(functional.cross_entropy(logits, y), [model.Z, model.bias])
    torch.testing.assert_close(model.Z.grad, slopes[0])
    torch.testing.assert_close(model.bias.grad, slopes[1])
    assert float(loss) == pytest.approx(7 * float(functional.cross_entropy(logits.detach(), y)))
    assert int(hits) == int((logits.argmax(1) == y).sum())


def test_shrinking_is_the_prox_of_the_nuclear_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, head, *_ = a_stage()
    model = convex_of(stage, head)
    monkeypatch.setattr("bidual.papers.experiments.convex_stage._PROX_BYTES", 1)  # block by block
    left, values, right = torch.linalg.svd(model.lifted, full_matrices=False)
    model.shrink(0.2)
    expected = (left * (values - 0.2).clamp(min=0)[:, None]) @ right
    torch.testing.assert_close(model.lifted, expected)


def test_convex_descent_reaches_the_optimum_that_the_certificate_asks_for() -> None:
    """At the optimum no block's gradient is steeper than the weight decay, and one with Z_k != 0 is as steep."""
    stage, head, x, on = a_stage()
    y, decay = torch.arange(7) % OUTPUTS, 0.05
    model = convex_of(stage, head)
    settings = Settings(gates=3, downsample=(False,), batch_size=7, weight_decay=decay, momentum=0.5)
    descent = ConvexDescent(model, KeptInputs(x, on), y, settings)
    optimiser, generator = descent.optimiser(1.0), torch.Generator().manual_seed(0)
    for _ in range(1500):
        descent.epoch(optimiser, generator)
    model.slope(x, on, y)
    assert model.Z.grad is not None
    steep = Nuclear().block_polar(model.Z.grad.permute(1, 2, 0, 3).flatten(2))
    assert float(steep.max()) == pytest.approx(decay, rel=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("form", [FACTORED, CONVEX, BY_CONVOLUTION])
def test_bytes_are_those_of_the_tensors(form: Form, count: int) -> None:
    descent, shapes = descent_of(form, count), shapes_of(form, count)
    optimiser = descent.optimiser(1e-3)
    descent.epoch(optimiser, torch.Generator())
    trained = [p for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
    needed, stage = needs(form, shapes), _stage(descent)
    fixed = (*stage.gate.parameters(), stage.shift, stage.scale)
    assert needed.weights == sum(p.nbytes for p in (*trained, *fixed))
    assert needed.descent == sum(p.grad.nbytes + optimiser.state[p]["momentum_buffer"].nbytes for p in trained)  # type: ignore[union-attr]
    x, on = descent.inputs.batch(torch.arange(8), torch.Generator())
    assert shapes[-1].input_bytes * 8 == x.nbytes
    assert shapes[-1].kept_bytes * 8 == x.nbytes + on.nbytes
    assert needed.batch >= x.nbytes + on.nbytes + _work(form, descent, x, on)
    assert needed.total == sum(needed)


def _stage(descent: StageDescent | ConvexDescent) -> GatedStage:
    return descent.model.stage if isinstance(descent, ConvexDescent) else descent.stage


def _work(form: Form, descent: StageDescent | ConvexDescent, x: Tensor, on: Tensor) -> int:
    stage = _stage(descent)
    if form.kind != "design":
        return stage.hidden(x).nbytes * 5 // 4
    return design(x, on, 3, 2).nbytes + x.shape[2] * x.shape[3] * 8 * (x.shape[1] * 9 + 1) * 4


def test_frozen_bytes_are_those_of_the_stages_before() -> None:
    for form in (FACTORED, CONVEX):
        before = [
            stage_costs.made(shape, form.factors, batch(8, shape.seen // 4, 2 * shape.side)[0].float(), *_where())
            for shape in shapes_of(form, 2)
        ]
        kept = [tensor for stage in before for tensor in (*stage.parameters(), stage.shift, stage.scale)]
        assert needs(form, shapes_of(form, 3)).frozen == sum(tensor.nbytes for tensor in kept)


def _where() -> tuple[torch.device, torch.Generator]:
    return torch.device("cpu"), torch.Generator().manual_seed(0)


def test_the_second_convex_stage_of_the_paper_sees_ten_thousand_channels() -> None:
    settings = Settings(gates=256, downsample=(False, True))
    first, second = stage_shapes(Form("convex", "design", 40), settings, 3, 32, 10)
    assert first.gates * first.factors == 10_240
    assert second.seen == 4 * 10_240
    rows = [row for row in paper_needs() if row.form == "convex"]
    assert [row.needed.total > row.free for row in rows] == [False, True, True, True, True]


def test_a_step_is_measured_in_a_process_of_its_own() -> None:
    form = replace(BY_CONVOLUTION, factors=40)
    settings = replace(SETTINGS, gates=64, downsample=(False,), batch_size=64)
    shapes = stage_shapes(form, settings, 2, 16, 10)
    cost = Measurement(form, shapes, *batch(64), "cpu", 1).in_new_process()
    assert 0 < cost.seconds < 60
    assert 0.5 < cost.peak / needs(form, shapes).total < 2


TINY = Configuration("tiny", SETTINGS, factors=(1, 2), images=16, steps=1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    """Nothing is measured, but what would be is made and kept."""
    seen: list[Measurement] = []

    def cost_of(measurement: Measurement) -> Cost:
        seen.append(measurement)
        return Cost(0.5 * len(measurement.shapes), 10**7 * measurement.form.factors)

    monkeypatch.setattr(bm_figure_6, "cost_of", cost_of)
    return seen


def rows_with(monkeypatch: pytest.MonkeyPatch, free: int) -> list[Row]:
    monkeypatch.setattr(bm_figure_6, "available_bytes", lambda device: free)
    return list(measured(TINY, *batch(20), OUTPUTS, "cpu"))


def test_every_stage_runs_where_memory_does(monkeypatch: pytest.MonkeyPatch, quick: list[Measurement]) -> None:
    rows = rows_with(monkeypatch, 10**12)
    assert [row.stage for row in rows] == [1, 2, 3] * 3 + [1, 1]
    assert not any(row.stopped for row in rows)
    assert rows[1].seconds == pytest.approx(1.0 * 16 / 8)  # two batches of the 16 images
    assert all(len(one.images) == 8 for one in quick)
    assert rows[0].kept == 16 * (8 * 8 * 8 * 4 + 4 * 8 * 8)


def test_convex_form_stops_where_memory_would_not_do(monkeypatch: pytest.MonkeyPatch, quick: list[Measurement]) -> None:
    needed = [needs(CONVEX, shapes_of(CONVEX, count)) for count in (1, 2, 3)]
    rows = rows_with(monkeypatch, needed[1].total - 1)
    convex = [row for row in rows if row.form == "convex"]
    assert [row.stopped for row in convex] == [False, True, True]
    assert [row.needed for row in convex] == needed
    assert max(len(one.shapes) for one in quick if one.form.kind == "design") == 1
    text = bm_figure_6.table(rows)
    assert f"| stopped | only {human_bytes(needed[1].total - 1)} free | {human_bytes(needed[1].total)} |" in text
    assert len(text.splitlines()) == 2 + 3 * 3 + 2
    assert bm_figure_6.draw(rows).startswith(b"\x89PNG")


def test_paper_table_marks_what_its_card_would_not_do() -> None:
    lines = bm_figure_6.needs_table(paper_needs()).splitlines()
    assert len(lines) == 2 + 6
    assert "**" not in lines[2]
    assert lines[5].count("**") == 2 * 4


def test_configurations(monkeypatch: pytest.MonkeyPatch, quick: list[Measurement]) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (300, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, 300)
    data = ImageData("cifar-10", images, labels, images[:0], labels[:0], tuple("0123456789"))
    monkeypatch.setattr(bm_figure_6, "available_bytes", lambda device: 2 * 10**10)
    rows = bm_figure_6.run(CONFIGURATIONS["cpu"], data)
    assert {(row.configuration, row.gates, row.images) for row in rows} == {("cpu", 256, 300)}
    assert [row.stopped for row in rows if row.form == "convex"] == [False, True, True]
    assert bm_figure_6.claims(rows)[0].holds
    rows = bm_figure_6.run(CONFIGURATIONS["paper"], data)
    assert [row.stage for row in rows if row.form == "convex"] == [1, 2, 3, 4, 5]
    assert math.isclose(rows[0].seconds or 0, 0.5 * 300 / 128)


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no GPU for device 'cuda'; use device='cpu'"):
        list(measured(TINY, *batch(), OUTPUTS, "cuda"))
    with pytest.raises(ValueError, match="a step takes one batch, got 9 images"):
        Measurement(FACTORED, shapes_of(FACTORED, 1), *batch(9), "cpu", 1)._step()
