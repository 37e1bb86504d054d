"""The process `bidual`, which is also `python -m bidual` and what torchrun starts."""

import sys
from typing import NoReturn

from bidual.cli.signals import interruptible
from bidual.runtime.extras import MissingExtra, need


def main() -> NoReturn:
    """The command line, or one line on standard error where its packages are not installed.

    Signals are handled from the start, because importing it takes a while.
    """
    with interruptible() as interruption:
        try:
            need("typer", "rich")
            from bidual.cli.app import main as run
        except MissingExtra as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        except BaseException:
            if interruption.number is None:
                raise
            interruption.say()
            sys.exit(interruption.code)
        run()


if __name__ == "__main__":
    main()
