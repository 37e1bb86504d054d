"""Claims are predicates: the same code says yes to numbers that support a claim and no to numbers that refute it."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from bidual.papers.experiments import (
    bm_figure_1,
    bm_figure_2,
    bm_figure_6,
    cp_figure_1,
    cp_figure_2,
    cp_figure_3,
    cp_figure_4,
    cp_figure_5,
    cp_table_1,
    pr_figure_1,
    pr_figure_4,
    pr_figure_5,
    pr_figure_6,
    pr_figure_7,
    pr_table_2,
    pr_table_3,
    whitened_form,
)
from bidual.papers.experiments.descent import DescentRun
from bidual.papers.experiments.generated_labels import Fit
from bidual.papers.experiments.pr_figure_4 import Figure4, PatternRow, RankRow, ScaledRow
from bidual.papers.experiments.race_results import Curve, Panel, Point
from bidual.papers.experiments.staged_accuracy import StagedRow
from bidual.papers.experiments.whitened_images import Setting
from bidual.papers.reproduction import Claim
from bidual.papers.uci.study import Row as UciRow
from bidual.problems.solution import Record


def holds(claims: tuple[Claim, ...]) -> list[bool]:
    return [claim.holds for claim in claims]


def staged(data: str, test: tuple[float, ...], rival: float = nan) -> StagedRow:
    return StagedRow(data, "cpu", "P = 1, m = 1", 10, 4, test, test, (), 1.0, end_to_end=rival)


def test_r2() -> None:
    good = [staged("fashion-mnist", (0.5, end)) for end in (0.7, 0.8, 0.92)]
    sets = {"fashion-mnist": good, "cifar-10": [staged("cifar-10", row.test, 0.9) for row in good]}
    assert holds(bm_figure_1.claims(sets)) == [True, True, True, True, False]
    worse = {name: [replace(row, test=(0.6, 0.55), end_to_end=0.56) for row in rows] for name, rows in sets.items()}
    assert holds(bm_figure_1.claims(worse)) == [False, False, False, False, True]
    alone = {name: [replace(row, end_to_end=nan) for row in rows] for name, rows in sets.items()}
    assert not bm_figure_1.claims(alone)[-1].holds


def test_r14() -> None:
    three = staged("cifar-10", (0.5, 0.845))
    assert holds(pr_figure_6.claims({"cifar-10": [three]})) == [True, True, True]
    assert holds(pr_figure_6.claims({"cifar-10": [replace(three, test=(0.5, 0.4))]})) == [False, False, False]
    assert holds(pr_figure_6.claims({"cifar-10": [replace(three, test=(0.5, 0.505))]})) == [False, False, False]


def test_r1() -> None:
    optimum = bm_figure_2.Optimum(3, 0.1, 0, 4, 1.0, 0.0, 1.0)
    cell = bm_figure_2.Cell(optimum, "descent", 1, 1, 1.1, 0.0, 0.2, 0.2, 1, 1.0, 0, "")
    low = replace(cell, optimum=replace(optimum, beta=0.01), value=1.5, bound=0.6, certified=0.6)
    escape = replace(cell, method="escape", value=1.0, certified=1e-7)
    assert holds(bm_figure_2.claims([cell, low, escape])) == [True, True, True, True, True]
    false_bound, found = replace(cell, bound=0.01), replace(low, value=1.0)
    loose, other = replace(escape, certified=1e-3), replace(low, m=5, value=1 + 1e-12)
    assert holds(bm_figure_2.claims([false_bound, found, other, loose])) == [False, False, False, False, False]
    diverged = replace(cell, value=nan)
    assert not bm_figure_2.claims([diverged, low, escape])[0].holds
    assert not bm_figure_2.claims([diverged, low, escape])[3].holds
    assert not bm_figure_2.claims([cell, low, replace(escape, value=1.1)])[4].holds


def test_r3() -> None:
    rows = [row for row in bm_figure_6.paper_needs() if row.stage == 1]
    measured = [replace(row, configuration="cpu", seconds=1.0, peak=row.needed.total) for row in rows]
    faster = [replace(row, seconds=99.0, peak=10**12) if row.form == bm_figure_6.CONVEX else row for row in measured]
    assert holds(bm_figure_6.claims(faster)) == [True, True, True]
    slower = [replace(row, seconds=0.1, peak=1) if row.form == bm_figure_6.CONVEX else row for row in measured]
    assert holds(bm_figure_6.claims(slower)) == [True, False, False]
    stopped = [replace(row, seconds=None, peak=None) if row.form == bm_figure_6.CONVEX else row for row in measured]
    assert len(bm_figure_6.claims(stopped)) == 3
    card = [replace(row, configuration="cpu") for row in bm_figure_6.paper_needs()]
    assert bm_figure_6.claims(card)[0].holds
    small = [replace(row, needed=rows[0].needed) for row in bm_figure_6.paper_needs()]
    assert not bm_figure_6.claims(small)[0].holds


def descent(*ends: float) -> DescentRun:
    objective = torch.tensor(ends, dtype=torch.float64)[:, None]
    return DescentRun(objective, 1, 0.1)


def test_r4() -> None:
    record = Record("", 1, 1.0, 1.0, 1.0, 1e-3)
    result = cp_figure_1.Figure1(1.0, 1.0, 1e-8, 1.0, 1.0, {10: descent(1.2, 1.1), 50: descent(1.001)}, (record,), ())
    assert holds(cp_figure_1.claims(result)) == [True, True, True]
    other = replace(result, descent={10: descent(1.2, 1.0), 50: descent(1.3, 0.9)})
    assert holds(cp_figure_1.claims(other)) == [False, False, False]


def whitened(setting: Setting, formula: float, objective: float, accuracy: float) -> whitened_form.Row:
    svd = whitened_form.Thresholded(formula, formula, accuracy, 0.1)
    points = (whitened_form.Point(1, 50.0, objective, objective, accuracy),)
    run = whitened_form.Run(whitened_form.SGD(), "pixels", points)
    return whitened_form.Row("", setting, 3, 0.0, formula, svd, 1.0, 1.0, 0.0, 1, accuracy, 1.0, 1.0, (run,))


def test_r5() -> None:
    kinds = (Setting.CORRECTED, Setting.UNCENTRED, Setting.LITERAL)
    assert holds(cp_figure_2.claims([whitened(kind, 1.0, 1.0, 0.5) for kind in kinds])) == [True] * 5
    assert holds(cp_figure_2.claims([whitened(kind, 0.9, 1.2, 0.1) for kind in kinds])) == [False] * 5
    below = [whitened(kind, 1.0, 0.9, 0.1) for kind in kinds]
    assert holds(cp_figure_2.claims(below)) == [True, True, False, True, False]


def spiral(beta: float, relaxation: float, sgd: float, steps: float) -> cp_figure_3.SpiralRow:
    def found(value: float) -> cp_figure_3.Found:
        return cp_figure_3.Found(value, 1.0)

    ends = {10: found(steps), 50: found(1.0)}
    exact = (found(1.0), found(relaxation), found(1.0))
    return cp_figure_3.SpiralRow(beta, 1.0, 1.0, 0.0, 1.0, 3, 1.0, found(sgd), ends, *exact)


def test_r6() -> None:
    assert holds(cp_figure_3.claims([spiral(0.1, 1.0, 1.001, 1.001)])) == [True, True, True]
    assert holds(cp_figure_3.claims([spiral(0.1, 0.99, 1.001, 2.0)])) == [False, True, False]
    assert not cp_figure_3.claims([spiral(0.1, 1.0, 1.001, 1.0), spiral(1, 1.0, 1.5, 1.0)])[1].holds
    assert holds(cp_figure_3.claims([spiral(0.1, 2.0, nan, nan)])) == [False, False, False]


def test_r7() -> None:
    exact = cp_figure_4.ImageRow(0.1, 0.1, 1.0, 1.0, 1.0, 0.0, 1, 1.0, nan, 1.0)
    far = replace(exact, descent=1.2)
    assert holds(cp_figure_4.claims({"a": [exact] * 12})) == [True, True, True]
    assert holds(cp_figure_4.claims({"a": [far, *[exact] * 11]})) == [True, True, True]
    assert holds(cp_figure_4.claims({"a": [exact, far]})) == [False, False, True]
    assert not cp_figure_4.claims({"a": [replace(exact, network=0.9)]})[2].holds


def test_r8() -> None:
    zero, half, little = (Fit(value, value, value) for value in (1.0, 0.5, 0.05))
    right = cp_figure_5.Row("", Setting.CORRECTED, 3, 0.1, zero, little, 0.0, 0.1, nan, half, zero, half)
    at_zero = replace(right, setting=Setting.LITERAL, beta=1.0, linear=zero, relu=zero, lower_bound=1.0)
    at_zero = replace(at_zero, linear_sgd=zero, relu_sgd=zero)
    literal = replace(at_zero, beta=0.1, linear=Fit(1, 0.01, 1), linear_sgd=Fit(1, 0.01, 1))
    as_printed = replace(literal, relu=little, relu_sgd=little)
    assert holds(cp_figure_5.claims([right, as_printed, at_zero])) == [True] * 9
    other = replace(literal, linear=half, linear_sgd=half, relu=little, relu_sgd=Fit(1, 0.1, 0.4))
    better = [right, other, replace(at_zero, lower_bound=0.9)]
    assert holds(cp_figure_5.claims(better)) == [False, False, False, True, False, False, False, False, True]


def panel(model: str, bias: bool, train: float, whole: float) -> pr_figure_1.SpiralModel:
    setting = pr_figure_1.Setting()
    return pr_figure_1.SpiralModel(model, bias, 0, setting, 0.0, 0.0, 0.0, train, whole, 1, 1.0, None)  # type: ignore[arg-type]


def test_r9() -> None:
    models = [panel(m, bias, 1.0, 1.0 if m == "path" else 0.6) for m in pr_figure_1.TITLES for bias in (False, True)]
    assert holds(pr_figure_1.claims(models)) == [True, True, True]
    others = [panel(m, bias, 0.9, 0.99) for m in pr_figure_1.TITLES for bias in (False, True)]
    assert holds(pr_figure_1.claims(others)) == [False, False, False]


def test_r10() -> None:
    squared = RankRow(2, 1, "squared", 0, 2.0, 1.0, 1.0, 0.0, None, 9.0)
    huber = replace(squared, loss="huber", factor=3.0)
    figure = Figure4((squared, huber), (PatternRow(2, 1, 16, 2, True),))
    assert holds(pr_figure_4.claims(figure, [ScaledRow(1.0, 2.0, 121.0)])) == [True, True, True, True]
    worse = Figure4((replace(squared, low=200.0), replace(huber, low=4.0)), (PatternRow(2, 1, 16, 16, True),))
    assert holds(pr_figure_4.claims(worse, [ScaledRow(1e3, 2e3, 121.0)])) == [False, False, False, False]


def toy(networks: int, sgd: float, adam: float, seconds: float = 9.0) -> pr_table_2.ToyRow:
    rates = (("sgd", pr_table_2.PAPER_STEP, sgd), ("sgd", 0.1, sgd), ("adam", 0.01, adam))
    runs = tuple(pr_table_2.Runs(name, step, (value,), seconds) for name, step, value in rates)
    return pr_table_2.ToyRow(0, networks, pr_table_2.Optimum(1.0, 1.0, 1e-7, 1.0), runs)


def test_r11() -> None:
    assert holds(pr_table_2.claims([toy(5, 2.0, 2.0), toy(20, 1.29, 2.0)])) == [True] * 5
    reverse = [toy(5, 1.001, 0.9, 0.1), toy(20, 2.0, 2.0, 0.1)]
    assert holds(pr_table_2.claims(reverse)) == [False] * 5


def test_r11_on_the_numbers_of_the_paper() -> None:
    printed = {5: (0.0221, 0.0239, 0.0031, 0.0027, 0.0027), 20: (0.0010, 0.0027, 0.0009, 0.0010, 0.0027)}
    printed[40] = (0.0008, 0.0009, 0.0009, 0.0009, 0.0008)
    optimum = pr_table_2.Optimum(0.0007, 0.0007, 0.0, 4.947)
    rows = [
        pr_table_2.ToyRow(0, K, optimum, (pr_table_2.Runs("sgd", pr_table_2.PAPER_STEP, values, 11.62),))
        for K, values in printed.items()
    ]
    assert [pr_table_2._few(rows).holds, pr_table_2._more(rows, "paper").holds] == [True, True]


def race(convex: tuple[float, float], rival: tuple[float, float], decay: float) -> Panel:
    ends = {"convex": convex, "sgd": rival, "decay": (inf, decay)}
    curves = [
        Curve(method, "sgd", 0.1, (), (Point(0.0, 0.0, 1.0, 0.1), Point(min(seconds, 9.0), 1.0, 1.0, accuracy)))
        for method, (seconds, accuracy) in ends.items()
    ]
    return Panel("cifar-10", 3, 2, "", tuple(curves), None, None)


def test_r12() -> None:
    config = pr_figure_5.CONFIGS["smoke"]
    better = pr_figure_5.Result(config, "cpu", (race((1.0, 0.9), (2.0, 0.88), 0.5),))
    assert holds(pr_figure_5.claims(better)) == [True, True, True, False]
    worse = pr_figure_5.Result(config, "cpu", (race((3.0, 0.87), (2.0, 0.88), 0.9),))
    assert holds(pr_figure_5.claims(worse)) == [False, False, False, False]
    level = pr_figure_5.Result(config, "cpu", (race((1.0, 0.881), (2.0, 0.88), 0.879),))
    assert holds(pr_figure_5.claims(level)) == [True, False, False, False]


@pytest.mark.parametrize("better", [True, False])
def test_r13(better: bool) -> None:
    rows = []
    for number in range(12):
        for method in ("sgd", "convex_sgd", "adam", "convex_adam"):
            up = 0.1 if method.startswith("convex") and (better or number % 2) else 0.0
            down = 0.1 if method.startswith("convex") and not up else 0.0
            values = (0.7 + up - down, 0.7 + up - down)
            rows += [
                UciRow(f"set {number}", 9, 2, scaling, method, values, values, (), None, (), 1.0)
                for scaling in ("sum", "mean")
            ]
    assert holds(pr_table_3.claims(rows)) == [better] * 8


def test_r13_ties_count_as_good_and_not_as_wins() -> None:
    rows = [
        UciRow(f"set {number}", 9, 2, scaling, method, (0.7, 0.7), (0.7, 0.7), (), None, (), 1.0)
        for number in range(12)
        for method in ("sgd", "convex_sgd", "adam", "convex_adam")
        for scaling in ("sum", "mean")
    ]
    assert holds(pr_table_3.claims(rows)) == [True] * 4 + [False] * 4


def test_r15() -> None:
    k = torch.arange(1, 101, dtype=torch.float64)
    spectra = {"power": 1 / k, "exponential": torch.exp(-0.3 * k)}
    for kind, sigma in spectra.items():
        one = pr_figure_7.Spectrum("MNIST", "", "cpu", 100, 100, sigma.numpy(), 1.0)
        assert pr_figure_7.claims([one])[0].holds == (kind == "exponential")
    steep = pr_figure_7.Spectrum("MNIST", "", "cpu", 100, 100, (10.0 ** (-2 * k)).numpy(), 1.0)
    assert pr_figure_7.claims([steep])[1].holds


def test_t1() -> None:
    for power in (2.0, 9.0):
        points = tuple(cp_table_1.Point(n, float(n) ** power, 0.0) for n in (4, 8, 16, 32))
        assert holds(cp_table_1.claims([cp_table_1.Curve("relaxation", 2, points, "")])) == [power < 6]
