"""The command line. One file per command; errors become one line and exit code 2, signals 128 and their number."""

import io
import os
import sys
import warnings
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from bidual.cli.certify import certify
from bidual.cli.check import check
from bidual.cli.demo import demo
from bidual.cli.fit import fit
from bidual.cli.path import path
from bidual.cli.predict import predict
from bidual.cli.report import report
from bidual.cli.signals import UNREAD, Interruption, drop_output, interruptible, is_full, open_streams
from bidual.cli.train_images import train_images
from bidual.papers.command import reproduce
from bidual.runtime.extras import MissingExtra
from bidual.runtime.memory import is_out_of_memory

_INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt
_BUG = 70  # EX_SOFTWARE of sysexits.h

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
for command in (demo, fit, predict, certify, check, path, train_images, reproduce, report):
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
    """The entry point: exit code 0, 2 with one line on standard error when the input is at fault, 70 for a bug.

    A command that Ctrl-C or another signal ends has 128 and the signal's number, also if it keeps what it has so far.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    open_streams()
    for stream in (sys.stdout, sys.stderr):  # names of files and columns may be no text in the terminal's encoding
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings(), interruptible() as interruption:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)  # ConvergenceWarning is one
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments or ["--help"], interruption))


def _run(arguments: list[str], interruption: Interruption) -> int:
    """The exit code; what was interrupted may end in any error."""
    try:
        code = _call(arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        if interruption.number is None:
            return _refuse(error)
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        interruption.say()
    return interruption.code if code == _INTERRUPTED or interruption.number is not None else code


def _call(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False, prog_name="bidual")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.Exit as leave:
        return leave.exit_code
    except (BrokenPipeError, SystemExit):  # the second is what typer makes of the first
        drop_output()
        return UNREAD


def _refuse(error: Exception) -> int:
    """One line about the input; or about a bug, with the traceback if BIDUAL_DEBUG is set."""
    message = _explain(error)
    if message is not None:
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        return 2
    if os.environ.get("BIDUAL_DEBUG"):
        raise error
    what = f"{type(error).__name__}: {' '.join(str(error).split())}"
    print(f"internal error: {what}; please report it, with what BIDUAL_DEBUG=1 shows.", file=sys.stderr)
    return _BUG


def _explain(error: Exception) -> str | None:
    """The message for the user; None if the error is not about the input."""
    if hasattr(error, "format_message"):  # wrong use of the command line
        return error.format_message() or "wrong use; see --help."
    if is_out_of_memory(error):
        return "out of memory; use fewer samples, fewer patterns or fewer jobs."
    if isinstance(error, OSError) and is_full(error):
        drop_output()
        return f"cannot write to standard output: {os.strerror(error.errno or 0).lower()}."
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}."
    if isinstance(error, (ValueError, OSError, FloatingPointError, MissingExtra)):
        return str(error) or type(error).__name__
    return None


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
