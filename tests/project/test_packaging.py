"""What is shipped and what is pinned: types in the wheel, and a lock file that agrees with the constraints."""

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = ["all", "test", "lint", "docs"]
CONSUMER = """
from typing import assert_type
import bidual
from bidual import Certificate, ConvexMLPRegressor, Scope
def gap(certificate: Certificate) -> str:
    return certificate.relative_gap
assert_type(bidual.__version__, str)
assert_type(Scope("x"), Scope)
ConvexMLPRegressor(beta=1.0, nothing=2)
bidual.Nothing
"""


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


CONSTRAINTS = pins((ROOT / "constraints.txt").read_text())
LOCK = (ROOT / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, without the network."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", out, tree], check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_has_every_module_and_the_mark_of_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    assert {str(path.relative_to(source)) for path in source.rglob("*.py")} <= names
    assert "bidual/py.typed" in names
    assert not {name for name in names if name.startswith("tests")}


@pytest.mark.slow
def test_type_checkers_see_the_types(wheel: Path, tmp_path: Path) -> None:
    """Of the installed wheel, and with nothing else installed; two of its lines are wrong, and one name is misspelt."""
    venv.create(tmp_path / "v", with_pip=False)
    site = next((tmp_path / "v").glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "consumer.py").write_text(CONSUMER)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--ignore-missing-imports",
        "--python-executable",
        tmp_path / "v/bin/python",
    ]
    done = subprocess.run([*command, "consumer.py"], cwd=tmp_path, capture_output=True, text=True)
    assert re.findall(r"consumer.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout) == [
        ("6", "return-value"),
        ("9", "call-arg"),
        ("10", "attr-defined"),
    ], done.stdout


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    locked = {name: version.removesuffix("+cpu") for name, version in pins(LOCK).items()}
    assert locked == CONSTRAINTS


def test_everything_in_the_lock_has_a_hash_and_no_place() -> None:
    body = "\n".join(line for line in LOCK.splitlines() if not line.startswith("#"))
    for entry in re.split(r"\n(?=\S)", body):
        assert re.fullmatch(r"[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry)
    assert "://" not in LOCK


def closure(name: str, extras: set[str], seen: dict[str, set[str]]) -> None:
    """All distributions that one needs here, with the extras of each."""
    if extras <= seen.get(name, set()) and name in seen:
        return
    seen[name] = seen.get(name, set()) | extras
    for line in PROJECT_REQUIRES if name == "bidual" else distribution(name).requires or ():
        requirement = Requirement(line)
        if _wanted(requirement, extras):
            closure(canonicalize_name(requirement.name), set(requirement.extras), seen)


def _of_extra(line: str, extra: str) -> str:
    needs, _, marker = line.partition(";")
    return f'{needs}; extra == "{extra}"' + (f" and ({marker})" if marker else "")


PROJECT_REQUIRES = [
    *PROJECT["dependencies"],
    *(_of_extra(line, extra) for extra, lines in PROJECT["optional-dependencies"].items() for line in lines),
]


def _wanted(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))


def test_all_that_gets_installed_is_pinned_at_its_version() -> None:
    seen: dict[str, set[str]] = {}
    closure("bidual", set(NEEDED), seen)
    for name in seen.keys() - {"bidual"}:
        try:
            version = distribution(name).version.removesuffix("+cpu")
        except PackageNotFoundError:
            pytest.fail(f"{name} is needed and not installed")
        assert CONSTRAINTS.get(name) == version, name
