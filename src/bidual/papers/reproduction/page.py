"""All results on one Markdown page, with their figures beside it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bidual.papers.reproduction.run import Reproduction
from bidual.runtime.files import check_target, write_atomically

_FIGURES = Path("images") / "reproduction"
_SCALES = {
    "paper": "the printed sizes",
    "cpu": "sizes that two cores finish within an hour each, some of them smaller than the printed ones",
    "smoke": "tiny sizes on generated data: **this shows that everything runs, and nothing about the papers**",
}


def write_page(path: str | os.PathLike[str], results: Sequence[Reproduction]) -> None:
    """Write the page, and every figure to ``images/reproduction/NAME.png`` in its folder."""
    target = check_target(path)
    if not results:
        raise ValueError(f"there are no results for {target}; run some first, by bidual reproduce.")
    figures = target.parent / _FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    for result in results:
        write_atomically(figures / f"{result.name}.png", (result.folder / "figure.png").read_bytes())
    write_atomically(target, page(results).encode())


def page(results: Sequence[Reproduction]) -> str:
    """Markdown: what was run, a line for each result, and a section for each with its claims and figure."""
    return "\n".join([*_introduction(results), *_overview(results), *(line for r in results for line in _section(r))])


def _introduction(results: Sequence[Reproduction]) -> Iterator[str]:
    scales = dict.fromkeys(result.scale for result in results)
    first, claims = results[0], [claim for result in results for claim in result.claims]
    yield "# Published results, reproduced"
    yield ""
    yield f"Written by `bidual reproduce --scale {first.scale} --page`. Every claim of the papers is a predicate on"
    yield f"what was measured: {sum(claim.holds for claim in claims)} of {len(claims)} hold. BM, CP, PR are the papers;"
    yield "[corrections.md](corrections.md) has the statements that are false as printed."
    yield ""
    for scale in scales:
        yield f"- Scale `{scale}`: {_SCALES[scale]}."
    for kind in dict.fromkeys(map(_machine, results)):
        yield f"- Machine: {kind}."
    yield "- Seconds are those of the clock on the wall."
    yield ""


def _machine(result: Reproduction) -> str:
    facts = result.machine
    software = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "numpy", "scipy") if name in facts)
    gpu = f", {facts['gpu']}" if "gpu" in facts else ""
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} threads, {facts['memory']}{gpu}; {software}"
    )


def _overview(results: Sequence[Reproduction]) -> Iterator[str]:
    yield "| row | result | where | claims that hold | seed | seconds | made on | commit |"
    yield "|---|---|---|---|---|---|---|---|"
    for result in results:
        yield (
            f"| {result.row} | [{result.title}](#{_anchor(result)}) | {result.source} | {result.holds} of "
            f"{len(result.claims)} | {result.seed} | {result.seconds:,.0f} | {result.started[:10]} | "
            f"{f'`{result.commit}`' if result.commit else result.version} |"
        )
    yield ""


def _anchor(result: Reproduction) -> str:
    return result.row.lower()


def _section(result: Reproduction) -> Iterator[str]:
    yield f"## {result.row}"
    yield ""
    yield f"**{result.title}.** {result.source}; `bidual reproduce {result.name} --scale {result.scale}`."
    yield ""
    yield "| the paper says | found | holds | |"
    yield "|---|---|---|---|"
    for claim in result.claims:
        holds = "yes" if claim.holds else "**no**"
        yield f"| {_cell(claim.paper)} | {_cell(claim.ours)} | {holds} | {_cell(claim.why)} |"
    yield ""
    yield f"![{result.title}]({(_FIGURES / f'{result.name}.png').as_posix()})"
    yield ""
    yield '<details markdown="1"><summary>All numbers</summary>'
    yield ""
    yield result.table
    yield ""
    yield "</details>"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
