"""Reproduce a figure: run a paper's experiment again and see which of its claims hold.

Figure 1 of the paper on copositive programs is redone at the smallest scale. What comes back is not only a picture:
each claim that the paper makes stands beside the number measured here, with a verdict that the code computes.

Usage: python examples/reproduce_a_figure.py [--out FOLDER] [--experiment NAME]
"""

import argparse
from pathlib import Path

from bidual.papers.reproduction import Reproduction, reproduce


def main(out: Path, experiment: str = "cp_figure_1") -> Reproduction:
    # One call; "smoke" is the scale that takes seconds, other scales come closer to the paper's sizes.
    result = reproduce(experiment, scale="smoke", out=out)

    # The table of what was measured, as in the documentation.
    print(result.table)

    # Each claim with its verdict.
    for claim in result.claims:
        verdict = "holds" if claim.holds else "does not hold"
        print(f"\n{verdict}: {claim.paper}\n  here: {claim.ours}" + (f"\n  why: {claim.why}" if claim.why else ""))

    # The files: figure.png, figure.svg and result.json, which has all numbers.
    print()
    for path in sorted(path for path in result.folder.iterdir() if path.is_file()):
        print(f"file: {path}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder for what is written")
    parser.add_argument("--experiment", default="cp_figure_1", help="the experiment's name (default: cp_figure_1)")
    arguments = parser.parse_args()
    main(arguments.out, arguments.experiment)
