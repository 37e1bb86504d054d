import pytest

from gated_problems import KNOWN_OPTIMA, QUICK, SUITE, Case, make_problem, run_case


def test_the_suite_holds_every_size_penalty_and_fraction() -> None:
    assert len(SUITE) == 12
    assert len(QUICK) == 6
    assert set(KNOWN_OPTIMA) <= set(SUITE)


def test_a_known_optimum_is_found() -> None:
    outcome = run_case(Case(500, 20, 100, 0.1))
    assert outcome.objective == pytest.approx(outcome.known, rel=1e-7)
    assert outcome.gap <= 1e-6
    assert None not in outcome.seconds
    assert list(outcome.seconds) == sorted(outcome.seconds)  # type: ignore[type-var]


def test_gaps_that_are_not_reached_are_shown_as_such() -> None:
    outcome = run_case(Case(40, 3, 5, 0.1), max_time=1e-9)
    assert outcome.seconds[-1] is None
    assert outcome.gap > 1e-6


def test_beta_is_a_fraction_of_beta_max() -> None:
    problem = make_problem(Case(40, 3, 5, 0.25, c=5, penalty="nuclear"))
    assert problem.beta == pytest.approx(0.25 * problem.beta_max)
