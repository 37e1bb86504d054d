"""The command line. One file per command; errors become one line and exit code 2."""

import sys
import warnings
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from bidual.cli.bench import bench
from bidual.cli.certify import certify
from bidual.cli.demo import demo
from bidual.cli.fit import fit
from bidual.cli.path import path
from bidual.cli.predict import predict
from bidual.cli.report import report
from bidual.cli.reproduce import reproduce
from bidual.cli.train_images import train_images

app = typer.Typer(
    help="Neural networks trained to a certified global optimum.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, certify, path, train_images, reproduce, report, bench):
    app.command()(command)


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"bidual {version('bidual')}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Neural networks trained to a certified global optimum."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """The entry point: exit code 0, or 2 with one line on standard error when the input is at fault."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)  # ConvergenceWarning is one
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments or ["--help"]))


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False, prog_name="bidual")
        return code if isinstance(code, int) else 0
    except (typer.Exit, typer.Abort) as leave:
        return getattr(leave, "exit_code", 130)
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        return 2


def _explain(error: Exception) -> str | None:
    """What to tell the user; None if the error is not about the input."""
    if hasattr(error, "format_message"):  # wrong use of the command line
        return error.format_message() or "wrong use; see --help."
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}."
    if isinstance(error, (ValueError, OSError, MemoryError, FloatingPointError)):
        return str(error) or type(error).__name__
    return None


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
