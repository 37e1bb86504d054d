"""Commands that run on the processes of a torchrun."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bidual.runtime.numerical_errors import NUMERICAL
from bidual.runtime.rank_errors import FailedTogetherError, LeaderEndedError
from bidual.runtime.ranks import Ranks
from bidual.runtime.torchrun import torchrun_ranks


@contextmanager
def command_ranks(device: str) -> Iterator[Ranks]:
    """The ranks of a command, on the CPU or with a GPU each.

    What all of them refuse is said by rank 0, and the others end without a word; a lost rank is said by those that are
    left.
    """
    try:
        with torchrun_ranks(device=device) as ranks:
            try:
                yield ranks
            except (FloatingPointError, ValueError) as error:
                if not isinstance(error.__cause__ or error, NUMERICAL):
                    raise
                raise FailedTogetherError(str(error), ranks.leads) from error  # training diverges on all of them
    except (FailedTogetherError, LeaderEndedError) as error:
        if isinstance(error, FailedTogetherError) and error.leads:
            raise
        raise typer.Exit(2) from error
