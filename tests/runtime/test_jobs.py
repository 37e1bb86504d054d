"""Many fits in processes and threads of this machine."""

from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import parallel_config

from bidual import ConvexMLPRegressor, regularization_path, regularization_paths
from bidual.runtime.jobs import Task, run_all
from helpers.sweep_tasks import cross_validated, die, refuse, square, square_but_die_first, threads

SQUARES = [0, 1, 4, 9, 16]


def test_results_are_in_order_and_told_as_they_come() -> None:
    told: list[tuple[int, int]] = []
    tasks = [Task(square, (k,)) for k in range(5)]
    with parallel_config("threading", n_jobs=2):
        assert run_all(tasks, on_done=lambda k, result: told.append((k, result))) == SQUARES
    assert sorted(told) == list(enumerate(SQUARES))
    assert told[0] != (0, 0)
    assert run_all([]) == []


def test_a_task_s_own_error_is_raised() -> None:
    with pytest.raises(ValueError, match="no"):
        run_all([Task(square, (1,)), Task(refuse)])


def test_tasks_share_the_machine_with_one_thread_each() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert run_all([Task(threads)]) == [2]
        with parallel_config("threading", n_jobs=2):
            assert run_all([Task(threads)] * 2) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_work_of_a_dead_process_is_done_again(tmp_path: Path) -> None:
    told: list[int] = []
    tasks = [Task(square_but_die_first, (k, tmp_path)) for k in range(5)]
    assert run_all(tasks, 2, lambda k, _: told.append(k)) == SQUARES
    assert sorted(told) == [0, 1, 2, 3, 4]
    assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_the_sweep() -> None:
    with pytest.raises(ChildProcessError, match="died 4 times in a row"):
        run_all([Task(die), Task(square, (2,))], 2)


def test_cross_validation_is_the_same_in_processes_and_threads() -> None:
    serial = cross_validated()
    assert cross_validated(n_jobs=2) == serial
    with parallel_config("threading", n_jobs=2):
        assert cross_validated() == serial
        assert cross_validated(random_state=np.random.RandomState(3)) == cross_validated(
            n_jobs=1, random_state=np.random.RandomState(3)
        )


def test_paths_over_seeds_are_those_of_the_seeds() -> None:
    random = np.random.default_rng(0)
    X, y = random.standard_normal((20, 2)), random.standard_normal(20)
    estimator = ConvexMLPRegressor(activation="gated_relu", n_gates=8)
    paths = regularization_paths(estimator, X, y, seeds=[1, 2], n_betas=3, n_jobs=2)
    for seed, path in zip([1, 2], paths, strict=True):
        alone = regularization_path(estimator.set_params(random_state=seed), X, y, n_betas=3)
        assert (path.betas, path.losses, path.n_neurons) == (alone.betas, alone.losses, alone.n_neurons)
    assert paths[0].losses != paths[1].losses
