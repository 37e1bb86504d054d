"""Where and when a race was run, and which versions took part."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cases import Case
from environments import HERE
from systems import OURS, SYSTEMS

_VERSIONS = (
    "import json, sys; from importlib.metadata import version; print(json.dumps({n: version(n) for n in sys.argv[1:]}))"
)


def facts(cases: Sequence[Case], environments: Path) -> dict[str, Any]:
    """What a result states besides its cases."""
    names = sorted({OURS, *(name for case in cases for name in case.needs)})
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "threads": 1,
        "versions": {name: versions(name, environments) for name in names},
    }


def machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def commit() -> str:
    """The commit of the checkout, with a + if files differ from it; empty outside of one."""
    head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return head + ("+" if head and changes else "")


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def versions(name: str, environments: Path) -> dict[str, str]:
    """The installed versions of a system's packages; empty if its environment is not there."""
    system = SYSTEMS[name]
    command = [str(system.python(environments)), "-c", _VERSIONS, *system.packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return json.loads(done.stdout)
