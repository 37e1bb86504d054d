"""Every published result of the three papers with one command: run, checked claim by claim, kept, and shown."""

from bidual.papers.reproduction.catalogue import ROWS, everything, find
from bidual.papers.reproduction.context import Context
from bidual.papers.reproduction.experiment import SCALES, Experiment, Finding, Scale
from bidual.papers.reproduction.run import Reproduction, read, reproduce
from bidual.papers.reproduction.several import Results, reproduce_all
from bidual.reporting.written import Claim

__all__ = [
    "ROWS",
    "SCALES",
    "Claim",
    "Context",
    "Experiment",
    "Finding",
    "Reproduction",
    "Results",
    "Scale",
    "everything",
    "find",
    "read",
    "reproduce",
    "reproduce_all",
]
