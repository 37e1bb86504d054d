"""What importing the package and asking the command line for help import, and that names are there all the same."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import bidual

SLOW = ("torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "onnx", "jaxtyping", "joblib")
LISTED = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"


def child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def imported_by(code: str) -> set[str]:
    """The top packages that a fresh interpreter has imported after some code."""
    end = f"\nfinally:\n    {LISTED}"
    return {name.partition(".")[0] for name in json.loads(child(f"try:\n    {code}{end}").stderr.splitlines()[-1])}


@pytest.mark.parametrize("code", ["import bidual", "import bidual; dir(bidual); bidual.__version__"])
def test_the_package_imports_nothing_slow(code: str) -> None:
    assert imported_by(code).isdisjoint({*SLOW, "typer", "rich"})


COMMANDS = ("fit", "predict", "certify", "path", "demo", "train-images", "reproduce", "report")


def imported_by_command(*words: str, code: int) -> set[str]:
    run = f"from bidual.__main__ import main; import sys; sys.argv[1:] = {words}"
    return imported_by(f"{run}\n    try: main()\n    except SystemExit as leave: assert leave.code == {code}")


@pytest.mark.parametrize("words", [("--version",), ("--help",), *((command, "--help") for command in COMMANDS)])
def test_help_imports_nothing_slow(words: tuple[str, ...]) -> None:
    found = imported_by_command(*words, code=0)
    assert "typer" in found
    assert found.isdisjoint(SLOW)


def test_a_refused_command_imports_nothing_slow() -> None:
    assert imported_by_command("fit", "no.csv", "--target", "y", "--out", ".", code=2).isdisjoint(SLOW)


def test_every_name_is_there() -> None:
    assert set(bidual.__all__) <= set(dir(bidual))
    for name in bidual.__all__:
        assert getattr(bidual, name).__name__ == name
        assert bidual.__dict__[name] is getattr(bidual, name)  # looked up once


def test_star_import_gives_all_names() -> None:
    names: dict[str, object] = {}
    exec("from bidual import *", names)
    assert set(bidual.__all__) <= set(names)


def test_rooms_are_attributes() -> None:
    child("import bidual; assert bidual.losses.Squared; assert bidual.gauges.Nuclear")


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'bidual' has no attribute 'nothing'"):
        bidual.nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from bidual import Nothing  # noqa: F401
    assert not hasattr(bidual, "_private")
    assert not hasattr(bidual, "__path_of_nothing__")


def test_the_version_is_the_one_of_the_distribution() -> None:
    assert bidual.__version__ == version("bidual")
