"""Arrays in a file without a name."""

import os

import numpy as np

from bidual.runtime.shared_arrays import anonymous_file, read_arrays, write_arrays


def test_arrays_come_back_by_name_and_are_seen_by_all_readers() -> None:
    given = {"a": np.arange(6.0).reshape(2, 3), "no rows": np.zeros((0, 2), dtype=np.int64), "n": np.array(7)}
    with anonymous_file() as file:
        written, read = write_arrays(file.fileno(), given), read_arrays(file.fileno())
        for name, array in given.items():
            np.testing.assert_array_equal(read[name], array)
            assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        written["a"][1, 2] = -1
        assert read["a"][1, 2] == -1
        assert given["a"][1, 2] == 5


def test_later_arrays_may_be_larger_or_smaller() -> None:
    with anonymous_file() as file:
        for size in (3, 10_000, 5):
            write_arrays(file.fileno(), {"x": np.arange(size)})
            np.testing.assert_array_equal(read_arrays(file.fileno())["x"], np.arange(size))


def test_every_array_begins_at_a_multiple_of_64_bytes() -> None:
    with anonymous_file() as file:
        found = write_arrays(file.fileno(), {str(k): np.zeros(k, dtype=np.int8) for k in (1, 63, 65)})
        assert {array.ctypes.data % 64 for array in found.values()} == {0}


def test_without_files_in_memory_a_temporary_one_serves(monkeypatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with anonymous_file() as file:
        write_arrays(file.fileno(), {"x": np.arange(5)})
        np.testing.assert_array_equal(read_arrays(file.fileno())["x"], np.arange(5))
