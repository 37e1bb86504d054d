"""`bidual check`: prove again, in exact arithmetic, what a proof file claims."""

from pathlib import Path
from typing import Annotated

import typer

from bidual.cli import training as t
from bidual.cli.bidual_check import verdict


def check(
    proof: Annotated[Path, t.argument("PROOF", "A proof file, as --proof of fit and save_proof write it.")],
    data: Annotated[
        Path | None, typer.Argument(help="The data of a proof that names only their SHA-256.", show_default=False)
    ] = None,
) -> None:
    """Prove again, in exact arithmetic, what a proof file claims; exit code 1 if it does not hold.

    This runs the file bidual_check.py, which imports nothing of bidual: `python bidual_check.py PROOF` does the same.
    """
    code, sentence = verdict(proof, data)
    typer.echo(sentence, err=code == 2)
    if code:
        raise typer.Exit(code)
