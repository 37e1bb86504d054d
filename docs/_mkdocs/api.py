"""Pages of the API reference, made from the public names of the package."""

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import bidual

CODE = re.compile(r"(``.+?``|`[^`]+`|^ {4}[^\n]*$)", re.DOTALL | re.MULTILINE)  # in backticks, or indented
SPECIAL = re.compile(r"([\\*_\[\]])")


@dataclass(frozen=True)
class Room:
    """One page: file, title and text, the modules whose public names it shows, and whether with inherited methods."""

    file: str
    title: str
    text: str
    modules: tuple[str, ...]
    inherited: bool = False


def _within(package: str) -> tuple[str, ...]:
    return tuple(f"{package}.{found.name}" for found in iter_modules(import_module(package).__path__))


ROOMS = (
    Room("estimators", "Estimators", "Networks with the interface of scikit-learn.", ("bidual.estimators",), True),
    Room(
        "certify",
        "Certificates",
        "What is proved about a network, trained here or elsewhere.",
        (
            "bidual.problems.certificate",
            "bidual.problems.proof_file",
            "bidual.estimators.certifying",
            "bidual.io.foreign",
        ),
    ),
    Room("torch", "Beside torch", "Networks of torch loops, taken to their optimum.", ("bidual.torch",)),
    Room(
        "paths", "Paths", "One certified network per weight decay.", ("bidual.estimators.paths", "bidual.solvers.plan")
    ),
    Room("sweeps", "Sweeps", "Many fits at the same time.", ("bidual.runtime.jobs",)),
    Room(
        "files",
        "Files",
        "Saving, loading and exporting.",
        ("bidual.estimators.saving", "bidual.estimators.onnx_export"),
    ),
    Room(
        "whitening",
        "Whitening",
        "Data on which the optimum is a formula.",
        ("bidual.estimators.whitening", "bidual.training.relu.closed_form", "bidual.papers.methods.demeaned_form"),
    ),
    Room("losses", "Losses", "Convex losses and the data term.", ("bidual.losses", "bidual.losses.datafit")),
    Room("gauges", "Gauges", "Prices of weights and their polars.", ("bidual.gauges", "bidual.numerics.norms")),
    Room("architectures", "Architectures", "Network families as convex programs.", ("bidual.architectures",)),
    Room("networks", "Networks", "The torch modules that training returns.", ("bidual.architectures.modules",)),
    Room("operators", "Operators", "The linear maps of lifted variables.", ("bidual.operators",)),
    Room("patches", "Patches", "Samples cut into rows that share weights.", ("bidual.operators.patches",)),
    Room(
        "problems",
        "Problems",
        "What is minimised, and the loop that does it.",
        (
            "bidual.problems.problem",
            "bidual.problems.parallel",
            "bidual.problems.solution",
            "bidual.solvers.driver",
        ),
    ),
    Room("solvers", "Solvers", "Algorithms for programs over given blocks.", ("bidual.solvers",)),
    Room(
        "training",
        "ReLU training",
        "Loops that choose neurons.",
        (
            "bidual.training.relu.plan",
            "bidual.training.relu.column_generation",
            "bidual.training.relu.cutting_planes",
            "bidual.training.relu.frank_wolfe",
            "bidual.patterns.cones",
            "bidual.papers.methods.recovery",
        ),
    ),
    Room("polar", "Polars", "Bounds over all activation patterns.", ("bidual.polar",)),
    Room(
        "patterns",
        "Patterns",
        "Activation patterns, sampled or all of them.",
        ("bidual.patterns", "bidual.patterns.spike_free"),
    ),
    Room("factored", "Factored training", "Neurons as variables (Burer-Monteiro).", ("bidual.solvers.factored",)),
    Room("copositive", "Copositive programs", "Relaxations over cones.", ("bidual.training.copositive",)),
    Room(
        "parallel",
        "Parallel networks",
        "Three layers and more under the path norm.",
        (
            "bidual.training.parallel",
            "bidual.training.parallel.plan",
            "bidual.papers.methods.low_rank",
        ),
    ),
    Room("layerwise", "Deep networks", "Layer after layer.", ("bidual.training.layerwise",)),
    Room("datasets", "Data sets", "Data of the papers, and where they come from.", ("bidual.io.datasets",)),
    Room(
        "experiments", "Experiments", "What the papers measured, one module each.", _within("bidual.papers.experiments")
    ),
    Room("reproduction", "Reproduction", "Published results with one call.", ("bidual.papers.reproduction",)),
    Room("reporting", "Reports", "What a training did, on one page.", ("bidual.reporting",)),
    Room("testing", "Testing", "Contracts that any new part can be held to.", ("bidual.testing",)),
)


def public_names(module: ModuleType) -> list[str]:
    """``__all__``, or what is defined in the module without an underscore."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_") and _callable(getattr(module, name))]


def _callable(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def identifiers(room: Room) -> dict[str, list[str]]:
    """The dotted names that a page shows, by module; names of the package itself are called by it."""
    found: dict[str, list[str]] = {}
    for path in room.modules:
        module = import_module(path)
        found[path] = [
            f"bidual.{name}" if getattr(bidual, name, None) is getattr(module, name) else f"{path}.{name}"
            for name in sorted(public_names(module), key=str.isupper)  # registries last
        ]
    return found


def entry(name: str, level: int, inherited: bool = False) -> str:
    """What makes mkdocstrings show a name."""
    options = f"      heading_level: {level}\n" + ("      inherited_members: true\n" if inherited else "")
    return f"::: {name}\n    options:\n{options}"


def pages() -> dict[str, str]:
    """The pages as Markdown, by file."""
    texts, index, shown = {}, ["# API reference\n", "Made from the docstrings.\n"], set[str]()
    for room in ROOMS:
        lines, count = [f"# {room.title}\n", f"{room.text}\n"], 0
        for path, names in identifiers(room).items():
            fresh = [name for name in names if name not in shown]
            shown.update(fresh)
            count += len(fresh)
            summary = (inspect.getdoc(import_module(path)) or "").partition("\n")[0]
            lines.append(f"## `{path}`\n\n{escaped(summary)}\n")
            lines += [entry(name, 3, room.inherited) for name in fresh]
        texts[f"api/{room.file}.md"] = "\n".join(lines)
        index.append(f"- [{room.title}]({room.file}.md): {room.text}")
    missing = [f"bidual.{name}" for name in bidual.__all__ if f"bidual.{name}" not in shown]
    index += ["", *(entry(name, 2) for name in missing)]
    return {"api/index.md": "\n".join(index) + "\n"} | texts


def escaped(text: str) -> str:
    """Prose with formulas as Markdown that shows it as it is; code is left alone."""
    pieces = CODE.split(text)
    pieces[::2] = [SPECIAL.sub(r"\\\1", piece).replace("<", "&lt;") for piece in pieces[::2]]
    return "".join(pieces)
