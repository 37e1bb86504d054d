"""Jobs of benchmarks in processes of their own, under torchrun."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bidual.distributed import Ranks, torchrun_ranks


def launch(script: str, job: Any, folder: Path) -> dict[str, Any]:
    """Run ``script --job JOB --folder FOLDER`` on ``job.ranks`` ranks; what went wrong is kept, not dropped."""
    out = folder / "result.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.ranks)]
    command += [script, "--job", json.dumps(asdict(job)), "--folder", str(folder)]
    code = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False).returncode
    return json.loads(out.read_text()) if out.is_file() else {**asdict(job), "error": f"exit code {code}"}


def answer(work: Callable[[Ranks], dict[str, Any]], folder: Path) -> None:
    """What a rank of a launched job does: its work, and the leader writes what came out."""
    with torchrun_ranks() as ranks:
        found = work(ranks)
        if ranks.leads:
            (folder / "result.json").write_text(json.dumps(found))
