"""Mutation testing of what certificates rest on: mutmut on a seeded share of the mutants of pyproject's [tool.mutmut].

    python .ci/mutants.py --share 0.1 --seed 0 --out benchmarks/results/mutants.json

A mutant is the code with one small change, and is killed if a test then fails. All of them take many hours; a share
drawn from every file says as much up to its standard error. Survivors are in the report: `mutmut show NAME`.
"""

import argparse
import json
import math
import random
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest
from mutmut.__main__ import cli
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.file_mutation import get_mutant_name, mutate_file_contents
from mutmut.stats import status_by_exit_code

KILLED = {"killed", "timeout", "segfault"}

if not hasattr(pytest.Item, "_nodeid"):  # mutmut 3.8 asks for a name that pytest 9.2 no longer has
    pytest.Item._nodeid = property(lambda item: item.nodeid)


def mutated_files() -> list[Path]:
    files = (path for root in config().source_paths for path in Path(root).rglob("*.py"))
    return sorted(path for path in files if any(fnmatch(str(path), only) for only in config().only_mutate))


def draw(share: float, seed: int) -> dict[str, Path]:
    """Names of mutants, with their files: of every file the same share, and three at least."""
    rng, chosen = random.Random(seed), {}
    for path in mutated_files():
        mutated = mutate_file_contents(str(path), path.read_text(), None, None)
        names = [get_mutant_name(path, name) for name in mutated.mutant_names]
        count = min(len(names), max(3, round(share * len(names))))
        chosen |= dict.fromkeys(rng.sample(names, count), path)
    return chosen


def results(chosen: dict[str, Path]) -> dict[str, str]:
    """What became of every mutant."""
    found: dict[str, str] = {}
    for path in sorted(set(chosen.values())):
        data = SourceFileMutationData(path=path)
        data.load()
        names = (name for name, file in chosen.items() if file == path)
        found |= {name: status_by_exit_code[data.exit_code_by_key.get(name)] for name in names}
    return found


def report(chosen: dict[str, Path], found: dict[str, str], share: float, seed: int) -> dict[str, object]:
    tried, killed = Counter(path.name for path in chosen.values()), Counter[str]()
    for name, status in found.items():
        killed[chosen[name].name] += status in KILLED
    rate = killed.total() / len(chosen)
    return {
        "share": share,
        "seed": seed,
        "mutants": len(chosen),
        "killed": killed.total(),
        "rate": rate,
        "standard_error": math.sqrt(rate * (1 - rate) / len(chosen)),
        "files": {name: {"mutants": tried[name], "killed": killed[name]} for name in sorted(tried)},
        "left": {name: status for name, status in sorted(found.items()) if status not in KILLED},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/mutants.json"))
    given = parser.parse_args()
    chosen = draw(given.share, given.seed)
    cli(["run", "--max-children", str(given.children), *chosen], standalone_mode=False)
    story = report(chosen, results(chosen), given.share, given.seed)
    given.out.write_text(json.dumps(story, indent=1) + "\n")
    print(f"{story['killed']} of {story['mutants']} mutants killed, {story['rate']:.1%}")


if __name__ == "__main__":
    main()
