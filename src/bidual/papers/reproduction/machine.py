"""On what a result was made: processor, memory, versions, and the commit of the checkout if there is one."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil
import torch

from bidual.runtime.memory import human_bytes

_PACKAGES = ("bidual", "torch", "numpy", "scipy", "scikit-learn", "clarabel")


def machine(device: str = "cpu") -> dict[str, str | int]:
    """Plain facts; no names of hosts, users or folders."""
    facts: dict[str, str | int] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory": human_bytes(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return facts | {name: version(name) for name in _PACKAGES}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit() -> str | None:
    """Of the checkout that this package is imported from, with a + where files differ from it; None outside of one."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "--", ":/src") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
