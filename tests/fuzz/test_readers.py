"""Every file reader on valid files and on mutations of them; the harness of the campaigns is what runs here."""

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import mutations
from fuzz.judging import Finding, judged
from fuzz.scale import FACTOR
from fuzz.targets import TARGETS

FEW = {"model_report": 4, "report": 4, "race": 10, "reproduction": 5}
ROOM = 4 * 2**30  # bytes


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """A header that announces a huge array must not get it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", TARGETS)
def test_valid_files_and_mutations(name: str) -> None:
    target = TARGETS[name]
    for data in target.seeds():
        target.run(data)
    first = random.randrange(10**9) if FACTOR else 0
    for number in range(first, first + round(FEW.get(name, 30) * (FACTOR or 1))):
        try:
            target.run(target.mutated(number))
        except Finding as finding:
            raise AssertionError(f"{name}, mutation {number}: {finding}") from finding


def test_what_is_no_refusal_is_a_finding() -> None:
    for error in (KeyError("x"), IndexError("x"), RuntimeError("x"), AssertionError("x"), MemoryError("x")):
        with pytest.raises(Finding), judged():
            raise error
    with pytest.raises(Finding), judged():
        int("x")
    with pytest.raises(Finding), judged():
        raise ValueError("a sentence, but not the package's")


def test_mutations_are_many_and_repeatable() -> None:
    target = TARGETS["pt2"]
    assert target.mutated(3) == target.mutated(3)
    assert len({target.mutated(number) for number in range(10)}) > 8
    deep = {mutations.json_changed(b'{"a": [1, {"b": "c"}]}', random.Random(k)) for k in range(200)}
    assert len(deep) > 50
    assert any(len(text) > 10_000 for text in deep)
