"""Standard output whose reader goes away, whose disk is full, or which is closed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bidual.cli.app import main
from helpers.children import Child

MANY = 20_000  # more lines than a pipe and a buffer hold


def printed(folder: Path, redirect: str, lines: int) -> tuple[int, str]:
    """Exit code and errors of a whole process that prints so many lines."""
    script = (
        "import sys, typer\n"
        "from bidual.cli import app as cli\n"
        f"cli.app.command('talk')(lambda: [print('a line', k) for k in range({lines})] and None)\n"
        "cli.main(['talk'])\n"
    )
    (folder / "talk.py").write_text(script)
    command = f"set -o pipefail; {sys.executable} {folder / 'talk.py'} {redirect}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("lines", [pytest.param(1, marks=pytest.mark.slow), MANY])
def test_a_reader_that_goes_away(tmp_path: Path, lines: int) -> None:
    code, errors = printed(tmp_path, "| true" if lines == 1 else "| head -1", lines)
    assert code in ((0, 141) if lines == 1 else (141,))  # one line may be in the pipe before its reader has gone
    assert errors == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("lines", [1, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_full_disk_behind_the_output(tmp_path: Path, lines: int) -> None:
    code, errors = printed(tmp_path, "> /dev/full", lines)
    assert (code, errors) == (2, "error: cannot write to standard output: no space left on device.\n")


@pytest.mark.slow
def test_a_closed_output(tmp_path: Path) -> None:
    assert printed(tmp_path, ">&-", 1) == (0, "")


def test_closed_outputs_of_a_command(tmp_path: Path) -> None:
    def closed() -> None:
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        main(["reproduce", "--out", str(tmp_path)])

    assert Child(tmp_path, closed).end().code == 0


def test_the_handlers_of_the_caller_come_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.raises(SystemExit):
        main(["--version"])
    assert [signal.getsignal(number) for number in numbers] == before
