import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.losses import Squared
from bidual.papers.experiments import pr_table_3
from bidual.papers.methods.penalty import PenaltyForm, train
from bidual.papers.methods.penalty_descent import Form, PenaltyDescent, gates_of
from bidual.papers.uci import study as uci_study
from bidual.papers.uci.duels import PAIRS, Count, Duel, duels
from bidual.papers.uci.models import METHODS, TUNED, Settings, Split
from bidual.papers.uci.study import Row

SETTINGS = Settings(splits=1, n_networks=4, width=3, steps=10, min_steps=10, batch_size=8, relu_seconds=0.2)
NAMES = ("balloons", "moons")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of 24 samples: one of PR's by name, and another."""
    folder, random = tmp_path_factory.mktemp("uci"), np.random.default_rng(0)
    for name in NAMES:
        X = random.standard_normal((24, 3))
        label = (X[:, 0] + 0.3 * random.standard_normal(24) > 0).astype(int)
        pd.DataFrame(X, columns=["f0", "f1", "f2"]).assign(label=label).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    return pr_table_3.run(folder, folder / "rows.json", NAMES, SETTINGS, workers=1)


def test_every_method_has_its_rows(rows: Sequence[Row]) -> None:
    wanted = {(name, "tuned" if m in TUNED else s, m) for name in NAMES for m in METHODS for s in ("sum", "mean")}
    assert {row.job for row in rows} == wanted
    assert len(rows) == len(wanted)
    for row in rows:
        assert (row.n, row.d, len(row.accuracies)) == (24, 3, 1)
        assert all(0 <= value <= 1 for value in row.accuracies + row.train_accuracies)
    assert all(row.gap is not None and row.gap <= 1e-4 for row in rows if row.method in ("exact", "gated_tuned"))


def test_descent_on_the_penalty_form_is_not_below_the_exact_optimum(rows: Sequence[Row]) -> None:
    found = {row.job: row.objectives for row in rows}
    for (name, scaling, method), objectives in found.items():
        if method.startswith("convex"):
            for descended, exact in zip(objectives, found[name, scaling, "exact"], strict=True):
                assert descended is None or descended >= (1 - 1e-4) * exact


def test_a_second_run_computes_nothing(
    folder: Path, rows: Sequence[Row], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "rows.json"
    out.write_bytes((folder / "rows.json").read_bytes())
    monkeypatch.setattr(uci_study, "measure", lambda *job: pytest.fail(f"{job} was computed again"))
    assert pr_table_3.run(folder, out, NAMES, SETTINGS, workers=1) == rows
    with pytest.raises(ValueError, match="made with other settings"):
        pr_table_3.run(folder, out, NAMES, replace(SETTINGS, steps=11), workers=1)
    out.write_text("[]")
    with pytest.raises(ValueError, match="does not hold rows"):
        pr_table_3.run(folder, out, NAMES, SETTINGS, workers=1)


def test_an_interrupted_run_goes_on(
    folder: Path, rows: Sequence[Row], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def measured(_: Path, *job: object) -> Row:
        asked.append(job[:3])
        if len(asked) == 4:
            raise KeyboardInterrupt
        return next(row for row in rows if row.job == job[:3])

    monkeypatch.setattr(uci_study, "measure", measured)
    with pytest.raises(KeyboardInterrupt):
        pr_table_3.run(folder, tmp_path / "rows.json", NAMES, SETTINGS, workers=1)
    again = pr_table_3.run(folder, tmp_path / "rows.json", NAMES, SETTINGS, workers=1)
    assert again == rows
    assert len(asked) == len(rows) + 1


def test_table_and_figure(rows: Sequence[Row]) -> None:
    lines = pr_table_3.table(rows).splitlines()
    assert sum(line.startswith("| balloons | 24 | 3 | 1.000 / 1.000 | 1.000 / 1.000 |") for line in lines) == 2
    assert sum(line.startswith("| moons | 24 | 3 |  |  |") for line in lines) == 2
    assert len(pr_table_3.counts_table(rows).splitlines()) == 2 + 2 * len(PAIRS)
    assert pr_table_3.draw(rows).startswith(b"\x89PNG")


def _made_up(name: str, method: str, *accuracies: float) -> Row:
    return Row(name, 24, 3, "sum", method, accuracies, accuracies, (), None, (), 0.0)


def test_counts_of_made_up_rows() -> None:
    """A clear win, a win within the noise, a tie with wins and losses, a clear loss, and a set that does not count."""
    convex = {"a": (0.9, 0.9), "b": (0.9, 0.5), "c": (0.6, 0.4), "d": (0.2, 0.3), "e-corrected": (1.0, 1.0)}
    other = {"a": (0.8, 0.7), "b": (0.5, 0.7), "c": (0.5, 0.5), "d": (0.4, 0.5), "e-corrected": (0.0, 0.0)}
    rows = [_made_up(name, "convex_sgd", *values) for name, values in convex.items()]
    rows += [_made_up(name, "sgd", *values) for name, values in other.items()]
    count = pr_table_3.counts(rows)["sum", "SGD"]
    assert (count.wins, count.ties, count.losses) == (2, 1, 1)
    assert (count.clear_wins, count.clear_losses) == (1, 1)
    assert count.at_least == (3, 1)
    assert count.p_value == 1.0
    assert count.mean == pytest.approx((0.15 + 0.1 + 0.0 - 0.2) / 4)
    assert {duel.name for duel in duels(rows, "sum", "SGD") if duel.clear} == {"a", "d"}
    assert "| sum | SGD | a | +0.150 ± 0.050 |" in pr_table_3.clear_table(rows)
    assert set(pr_table_3.counts(rows)) == {("sum", "SGD")}


def test_the_sign_test_leaves_ties_out() -> None:
    count = Count.of([Duel(str(k), (1.0,)) for k in range(6)] + [Duel("tie", (0.0,))])
    assert count.p_value == pytest.approx(2 * 0.5**6)


def test_the_paper_s_own_counts() -> None:
    """20 and 19 of 21, and every accuracy is a whole number of one test part of ceil(n / 5) samples."""
    for pair, at_least in (("SGD", 20), ("Adam", 19)):
        first, second = PAIRS[pair]
        assert sum(getattr(p, first) >= getattr(p, second) for p in pr_table_3.PAPER.values()) == at_least
    planning = [37 * value for value in pr_table_3.PAPER["planning"]]
    assert planning == pytest.approx([round(value) for value in planning], abs=0.04)


def test_bad_folders_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(f"there is no folder {tmp_path / 'no'}; give the one")):
        pr_table_3.run(tmp_path / "no")
    with pytest.raises(FileNotFoundError, match=r"lacks acute-inflammation\.csv and 19 more; add the files"):
        pr_table_3.run(folder)
    (tmp_path / "x.csv").write_text("f0,label\n1,0\n2,0\n")
    with pytest.raises(ValueError, match="two values"):
        pr_table_3.run(tmp_path, names=("x",))


def test_a_split_is_a_partition() -> None:
    X = torch.arange(11.0)[:, None]
    split = Split.draw(X, X, 3)
    assert len(split.X_test) == 3
    assert sorted(torch.cat([split.X, split.X_test]).flatten().tolist()) == list(range(11))
    assert set(split.inner.X.flatten().tolist()) | set(split.inner.X_test.flatten().tolist()) == set(
        split.X.flatten().tolist()
    )


@pytest.fixture
def toy() -> tuple[SubNetworkGates, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.randn(9, k, generator=generator, dtype=torch.float64) for k in (4, 1))
    return SubNetworkGates.sample(4, 3, 5, generator), X, y.sign()


def test_gradients_are_those_of_the_penalty_form(toy: tuple[SubNetworkGates, torch.Tensor, torch.Tensor]) -> None:
    cells, X, y = toy
    theirs = PenaltyForm(cells, Squared(), 0.5, 0.3)
    both = torch.randn(2, 4, 15, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs.both.data = both.view(2, 4, 3, 5).permute(0, 2, 3, 1)[..., None].contiguous()
    form, gates = Form(cells, 0.5, 0.3, False, 9), gates_of(cells, X)
    assert form.value(both, gates, X, y) == pytest.approx(theirs.value(X, y))
    theirs.objective(X, y).backward()
    assert theirs.both.grad is not None
    slope = theirs.both.grad[..., 0].permute(0, 3, 1, 2).reshape(2, 4, 15)
    torch.testing.assert_close(form.slope(both, gates, X, y), slope)


@pytest.mark.parametrize("mean", [False, True])
def test_descent_is_that_of_the_penalty_form(
    mean: bool, toy: tuple[SubNetworkGates, torch.Tensor, torch.Tensor]
) -> None:
    cells, X, y = toy
    ours = PenaltyDescent("sgd", 0.1, 30, mean=mean).run(cells, X, y, 0.5, 0)
    unit = len(X) if mean else 1
    operator_norm = _curvature(cells, X)
    form = PenaltyForm(cells, Squared(), unit * 0.5, unit * 1e-5)
    train(form, X, y, lambda p: torch.optim.SGD(p, 0.1 / operator_norm, 0.9), epochs=30)
    torch.testing.assert_close(ours.outputs(X), form(X).detach())
    assert unit * ours.objective == pytest.approx(form.value(X, y))


def _curvature(cells: SubNetworkGates, X: torch.Tensor) -> float:
    """2 |A A^T| from the design matrix of z."""
    first, second = cells.activity(X)
    on = (first & second[:, None]).flatten(0, 1).to(X)
    A = torch.cat([pattern[:, None] * X for pattern in on], 1)
    return 2 * float(torch.linalg.matrix_norm(A, 2)) ** 2
