"""One way to write a file: full disks, read-only folders, kill -9 and rivals leave the old file or the new, whole."""

import errno
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from bidual.runtime.files import check_target, scratch_file, scratch_folder, write_atomically
from helpers.children import Child, visible
from helpers.faulty_disks import small_files, tiny_disk

NOBODY = 65534


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    with tiny_disk(tmp_path / "disk") as folder:
        yield folder


def refused(path: Path, data: bytes) -> OSError:
    with pytest.raises(OSError, match=r"cannot write .*the existing file was left unchanged") as caught:
        write_atomically(path, data)
    return caught.value


def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, b"old")
    with small_files(1000):
        assert refused(path, bytes(5000)).errno == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert visible(tmp_path) == ["model"]


def test_a_full_disk(tiny: Path) -> None:
    write_atomically(tiny / "model", b"old")
    error = refused(tiny / "model", bytes(100_000))
    assert error.errno == errno.ENOSPC
    assert str(error).count("no space left on device") == 1
    assert (tiny / "model").read_bytes() == b"old"
    assert visible(tiny) == ["model"]
    write_atomically(tiny / "model", bytes(30_000))
    assert visible(tiny) == ["model"]


def test_a_read_only_disk_is_said_before_any_work(tiny: Path) -> None:
    write_atomically(tiny / "model", b"old")
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    for path in (tiny / "model", tiny / "new"):
        with pytest.raises(PermissionError, match=r"cannot write .* is read-only; choose another one"):
            check_target(path)
    assert (tiny / "model").read_bytes() == b"old"


def as_nobody(folder: Path, work: object) -> str:
    """What a function says in a process without rights."""

    def told() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setuid(NOBODY)
        try:
            work()  # type: ignore[operator]
        except OSError as error:
            print(error)

    return Child(folder, told).end().out


def test_a_folder_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "model").write_text("old")
    folder.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    said = as_nobody(tmp_path, lambda: write_atomically(folder / "model", b"new"))
    assert "theirs is read-only; choose another one." in said
    assert (folder / "model").read_text() == "old"
    folder.chmod(0o755)
    assert visible(folder) == ["model"]


def test_a_file_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "model").write_text("old")
    (folder / "model").chmod(0o444)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    said = as_nobody(tmp_path, lambda: write_atomically(folder / "model", b"new"))
    assert "the file is there and read-only; choose another name." in said
    assert (folder / "model").read_text() == "old"


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_devices_are_not_replaced_by_files(device: str) -> None:
    with pytest.raises(ValueError, match="a device or a pipe"):
        write_atomically(device, b"data")
    assert stat.S_ISCHR(os.stat(device).st_mode)


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "model", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_into_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lost" / "model")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_atomically(tmp_path / "link", b"new")


def test_names_as_long_as_file_systems_take(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    write_atomically(path, b"new")
    assert visible(tmp_path) == [path.name]


def versions(path: Path, letter: bytes) -> None:
    """Writes for ever, every version of one letter and another length."""
    for k in count():
        write_atomically(path, letter * (1_000_000 + k))


def test_killed_in_the_middle_of_writing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path, caught = folder / "model", 0
    write_atomically(path, b"a" * 1_000_000)
    for _ in range(12):
        known = set(os.listdir(folder))
        child = Child(tmp_path, lambda: versions(path, b"a"))
        child.wait_until(lambda known=known: set(os.listdir(folder)) - known)  # type: ignore[misc]
        assert child.tell(signal.SIGKILL).code == -signal.SIGKILL
        data = path.read_bytes()
        assert set(data) == {ord("a")}
        assert len(data) >= 1_000_000
        caught += len(visible(folder)) > 1
    assert caught, "no kill came between creating and renaming"
    write_atomically(path, b"new")
    assert visible(folder) == ["model"]


def test_scratch_that_is_in_use_stays(tmp_path: Path) -> None:
    def hold() -> None:
        with scratch_file(tmp_path, "model"):
            signal.pause()

    child = Child(tmp_path, hold)
    child.wait_until(lambda: any(name.endswith(".tmp") for name in visible(tmp_path)))
    write_atomically(tmp_path / "model", b"new")
    assert [name.endswith(".tmp") for name in visible(tmp_path)] == [True, False]
    child.tell(signal.SIGKILL)
    assert len(visible(tmp_path)) == 2
    write_atomically(tmp_path / "model", b"newer")
    assert visible(tmp_path) == ["model"]


def test_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    def leave() -> None:
        with scratch_folder(tmp_path, "download") as folder:
            (folder / "half").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)

    assert Child(tmp_path, leave).end().code == -signal.SIGKILL
    assert len(visible(tmp_path)) == 1
    with scratch_folder(tmp_path, "download") as folder:
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]
    assert not visible(tmp_path)


def test_what_is_not_scratch_of_this_file_is_left_alone(tmp_path: Path) -> None:
    others = [".model.tmp", ".model.12345678.bak", ".model.nothexad.tmp", ".other.12345678.tmp", "model.12345678.tmp"]
    for name in others:
        (tmp_path / name).write_text("")
    write_atomically(tmp_path / "model", b"new")
    assert visible(tmp_path) == sorted([*others, "model"])


def test_two_processes_that_write_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "model"
    write_atomically(path, b"a" * 1_000_000)
    rivals = [Child(tmp_path, lambda letter=letter: many(path, letter)) for letter in (b"a", b"b")]  # type: ignore[misc]
    seen = set()
    for _ in range(50):
        data = path.read_bytes()
        assert len(set(data)) == 1, "a mixture"
        assert len(data) >= 1_000_000
        seen.add(data[:1])
    assert all(rival.end() == (0, "", "") for rival in rivals)
    assert path.read_bytes() in (b"a" * 1_000_040, b"b" * 1_000_040)
    assert visible(folder) == ["model"]


def many(path: Path, letter: bytes) -> None:
    for k in range(41):
        write_atomically(path, letter * (1_000_000 + k))
