from bidual.experiments import cp_figure_1, cp_figure_3


def test_figure_1_descent_with_few_neurons_stays_above_the_certified_optimum() -> None:
    result = cp_figure_1.run(neurons=(10,), trials=2, epochs=4000, frank_wolfe_steps=200)
    assert result.gap <= 1e-6
    assert float(result.descent[10].final.min()) > 1.02 * result.optimum
    assert all(record.relative_gap > 0.05 for record in result.frank_wolfe)
    assert cp_figure_1.draw(result).startswith(b"\x89PNG")


def test_figure_3_descent_never_falls_below_the_certified_bound() -> None:
    rows = cp_figure_3.run(betas=(1e-2, 1e-1, 1.0), n_neurons=60, epochs=600)
    for row in rows:
        assert row.gap <= 1e-6
        assert row.descent >= row.lower_bound
    assert rows[-1].excess < 0.05
    assert cp_figure_3.draw(rows).startswith(b"\x89PNG")
