"""The layout of the package, measured as `.ci/house.py` does: no import cycles, few entries in the root."""

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from helpers.places import ROOT

SOURCE = ROOT / "src" / "bidual"
FILES = {"types.py", "py.typed", "__init__.py", "__main__.py"}


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / ".ci" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_modules_import_each_other(house: ModuleType) -> None:
    """Imports inside functions count."""
    assert house.cycles(house.imports(SOURCE)) == []


def test_every_import_is_of_a_module_that_exists(house: ModuleType) -> None:
    """Type checkers are told to ignore missing imports, because of packages without types."""
    names = house.modules(SOURCE)
    missing = {name: sorted(targets - set(names)) for name, targets in house.imports(SOURCE).items()}
    assert {name: targets for name, targets in missing.items() if targets} == {}


def test_a_cycle_through_a_function_is_found(house: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from bidual.b import g\n")
    (tmp_path / "b.py").write_text("from bidual import c\n")
    (tmp_path / "c.py").write_text("import bidual.a\n")
    (tmp_path / "d.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import bidual.e\n")
    (tmp_path / "e.py").write_text("import bidual.d\nimport bidual.a\n")
    assert house.cycles(house.imports(tmp_path)) == [["bidual.a", "bidual.b", "bidual.c"]]


def test_the_root_holds_rooms_only() -> None:
    entries = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert entries >= FILES
    assert len(entries) <= 23
    assert all((SOURCE / name).is_dir() for name in entries - FILES)


def test_the_picture_has_the_rooms_of_the_import_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_mkdocs"))
    import rooms

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert rooms.rooms() == contracts[0]["layers"][::-1]
    assert rooms.FILE.read_text(encoding="utf-8") == rooms.picture()
