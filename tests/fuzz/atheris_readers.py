"""Coverage-guided fuzzing of the file readers: ``python atheris_readers.py SECONDS [TARGET ...]``.

Every target runs in a process of its own, which libFuzzer ends at the first finding. Valid files are written to a
folder of their own first, and mutated by :mod:`mutations` as well as by libFuzzer.
"""

import os
import random
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

_MEMORY, _SLOW = 4096, 60  # MB, and seconds for one file
_LONGEST = 2**17  # bytes of a file
_READERS = [
    *(
        "bidual.estimators.saving",
        "bidual.runtime.container",
        "bidual.runtime.registry",
        "bidual.io.foreign",
        "bidual.io.tables",
    ),
    *(
        "bidual.io.datasets",
        "bidual.training.layerwise.checkpoint",
        "bidual.distributed.fitting",
    ),
    *("bidual.reporting", "race_results", "race_table", "bidual.papers.reproduction.run", "bidual.runtime.json_text"),
]
with atheris.instrument_imports(include=_READERS):
    from fuzz import targets


def fuzz(name: str, corpus: Path, seconds: str) -> None:
    """Fuzz one target until time is up or something is found; never returns."""
    target = targets.TARGETS[name]

    def run(data: bytes) -> None:
        target.run(bytes(data))

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = atheris.Mutate(data, max_size) if rng.random() < 0.5 else target.mutate(bytes(data), rng)
        return bytes(changed)[:max_size]

    for number, data in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={_MEMORY}", f"-timeout={_SLOW}", f"-max_len={_LONGEST}"]
    options = [*limits, f"-artifact_prefix={corpus}/", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


def forked(name: str, seconds: str, log: Path) -> int:
    """The exit code of a target in a process of its own, which has its output in a file."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with TemporaryDirectory() as corpus, log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            fuzz(name, Path(corpus), seconds)
    except SystemExit as leave:
        code = int(leave.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # the parent's folders are the parent's to remove


def main(seconds: str, names: list[str]) -> int:
    """All targets, one after another; 1 if anything was found."""
    found = 0
    for name in names:
        targets.TARGETS[name].seeds()  # once, for all processes
        with TemporaryDirectory() as folder:
            code = forked(name, seconds, log := Path(folder) / "log")
            said = log.read_text(errors="replace")
        count = next((line.split()[-1] for line in said.splitlines() if "number_of_executed_units" in line), "?")
        print(f"{name}: {count} executions, {'a finding' if code else 'nothing found'}", flush=True)
        if code:
            print(said[-6000:], flush=True)
        found |= int(code != 0)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or list(targets.TARGETS)))
