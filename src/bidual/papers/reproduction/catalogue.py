"""All published results, by name and by row. Experiments are imported on first use."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from bidual.papers.reproduction.experiment import Experiment
from bidual.runtime.extras import need

ROWS: Mapping[str, str] = MappingProxyType(
    {
        "R1": "bm_figure_2",
        "R2": "bm_figure_1",
        "R3": "bm_figure_6",
        "R4": "cp_figure_1",
        "R5": "cp_figure_2",
        "R6": "cp_figure_3",
        "R7": "cp_figure_4",
        "R8": "cp_figure_5",
        "R9": "pr_figure_1",
        "R10": "pr_figure_4",
        "R11": "pr_table_2",
        "R12": "pr_figure_5",
        "R13": "pr_table_3",
        "R14": "pr_figure_6",
        "R15": "pr_figure_7",
        "T1": "cp_table_1",
    }
)

TIMED = frozenset({"R2", "R3", "R4", "R5", "R11", "R12", "T1"})  # a claim, a budget or an axis is seconds
DIVIDED = frozenset({"R13"})  # has parts of its own for several workers


def find(name: str) -> Experiment:
    """An experiment by its name or its row, in any case: "cp_figure_1", "R4"."""
    module = ROWS.get(name.upper(), name.lower())
    if module not in ROWS.values():
        near = difflib.get_close_matches(module, ROWS.values(), n=3, cutoff=0.4) or list(ROWS.values())
        raise ValueError(f"there is no experiment {name!r}; did you mean {', '.join(near)}, a row R1 to R15, or all?")
    need("matplotlib", "pandas")  # for its figure and its tables
    experiment = import_module(f"bidual.papers.experiments.{module}").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment


def everything() -> list[Experiment]:
    """All experiments, in the order of their rows."""
    return [find(row) for row in ROWS]
