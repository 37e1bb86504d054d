"""A virtual environment for each group of peers that can live together, from pinned requirements.

    python benchmarks/peers/environments.py [--folder .peers]

Running it again does nothing unless a requirements file has changed.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".peers"
_STAMP = ".requirements"

# adelie needs numpy < 2; pyscnn asks for a torch of its own, so what it needs is installed first and then it alone
ENVIRONMENTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "modern": (("modern.txt", ()),),
    "adelie": (("adelie.txt", ()),),
    "pyscnn": (("pyscnn.txt", ()), ("pyscnn-alone.txt", ("--no-deps",))),
}


def python_of(folder: Path, name: str) -> Path:
    return folder / name / "bin" / "python"


def create(name: str, folder: Path = FOLDER) -> bool:
    """Make one environment; False if it was there already."""
    stamp, wanted = folder / name / _STAMP, digest(name)
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
    for file, options in ENVIRONMENTS[name]:
        _pip(python_of(folder, name), ["install", "--quiet", *options, "-r", str(HERE / "requirements" / file)])
    stamp.write_text(wanted)
    return True


def digest(name: str) -> str:
    """What identifies the requirements of an environment."""
    texts = [(HERE / "requirements" / file).read_text() for file, _ in ENVIRONMENTS[name]]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _pip(python: Path, arguments: Sequence[str]) -> None:
    subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="Where the environments go.")
    parser.add_argument("--only", nargs="*", choices=sorted(ENVIRONMENTS), help="Some of them.")
    arguments = parser.parse_args()
    for name in arguments.only or ENVIRONMENTS:
        print(f"{name}: {'made' if create(name, arguments.folder) else 'up to date'}", flush=True)


if __name__ == "__main__":
    main()
