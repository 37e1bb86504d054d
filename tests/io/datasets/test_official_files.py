import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bidual.io.datasets import load_images
from bidual.io.datasets.sources import ImageSource
from helpers.official_files import cifar_files, cifar_source, mnist_files, mnist_source, tar, write

MNIST_FILES, CIFAR_FILES = mnist_files(), cifar_files()
TAR = tar(CIFAR_FILES)


class Quiet(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *args: object) -> None:
        self.asked.append(self.path)


class Server:
    """Files of a folder, and which of them were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, []
        handler = type("Handler", (Quiet,), {"asked": self.asked})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.http.server_port}/"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "BIDUAL_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("bidual.io.datasets.official_files.user_cache_path", lambda name: tmp_path / "cache" / name)
    server = Server(write(tmp_path / "served", {**MNIST_FILES, "c.tar.gz": TAR}))
    know(monkeypatch, mnist_source(MNIST_FILES, server.url), cifar_source(CIFAR_FILES, server.url + "c.tar.gz", TAR))
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def know(monkeypatch: pytest.MonkeyPatch, *sources: ImageSource) -> None:
    monkeypatch.setattr("bidual.io.datasets.images.IMAGE_SOURCES", {one.name: one for one in sources})


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_nothing_is_downloaded_unasked(server: Server) -> None:
    with pytest.raises(FileNotFoundError, match="MNIST lacks"):
        load_images("mnist")
    assert server.asked == []


def test_files_are_downloaded_once_into_the_cache(server: Server, tmp_path: Path) -> None:
    data = load_images("mnist", download=True)
    assert (len(data.train_images), len(data.test_images)) == (6, 3)
    assert names(tmp_path / "cache/bidual/mnist") == set(MNIST_FILES)
    asked = len(server.asked)
    load_images("mnist", download=True)
    load_images("mnist")
    assert len(server.asked) == asked == 4


def test_only_what_is_missing_or_damaged_is_downloaded(server: Server, tmp_path: Path) -> None:
    damaged, *lost = MNIST_FILES
    files = {**MNIST_FILES, damaged: MNIST_FILES[damaged][:50]}
    del files[lost[0]]
    write(tmp_path / "data/mnist", files)
    load_images("mnist", tmp_path / "data", download=True)
    assert sorted(server.asked) == sorted(f"/{name}" for name in (damaged, lost[0]))
    assert not (tmp_path / "cache").exists()


def test_one_part_downloads_its_files_only(server: Server) -> None:
    load_images("mnist", part="test", download=True)
    assert all(path.startswith("/t10k") for path in server.asked)


def test_an_archive_is_unpacked_and_removed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = load_images("cifar10", tmp_path / "data", download=True)
    assert (len(data.train_images), data.note) == (20, "")
    assert names(tmp_path / "data/cifar-10-batches-bin") == set(CIFAR_FILES)


def test_a_partial_cifar10_is_completed(server: Server, tmp_path: Path) -> None:
    kept = {name: CIFAR_FILES[name] for name in ("data_batch_1.bin", "test_batch.bin")}
    folder = write(tmp_path / "cifar-10-batches-bin", kept)
    assert load_images("cifar10", folder).note != ""
    assert load_images("cifar10", folder, download=True).note == ""
    assert names(folder) == set(CIFAR_FILES)


@pytest.mark.parametrize(("name", "file"), [("mnist", next(iter(MNIST_FILES))), ("cifar-10", "c.tar.gz")])
def test_a_corrupted_download_is_refused(server: Server, tmp_path: Path, name: str, file: str) -> None:
    (server.folder / file).write_bytes(b"not what it was")
    with pytest.raises(ValueError, match=rf"{file} did not give the official file: its MD5 is \w{{32}}, not \w{{32}};"):
        load_images(name, download=True)
    assert not [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]


def test_a_failed_download_names_the_address(server: Server) -> None:
    (server.folder / next(iter(MNIST_FILES))).unlink()
    with pytest.raises(ConnectionError, match=r"could not download http://127\.0\.0\.1.*404.*check the connection"):
        load_images("mnist", download=True)


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mnist").write_text("a file")
    with pytest.raises(PermissionError, match=r"cannot download into .*; give another data_dir"):
        load_images("mnist", tmp_path / "data", download=True)
    assert server.asked == []
