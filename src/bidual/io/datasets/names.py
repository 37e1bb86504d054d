"""Names of data sets in any spelling."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


def known_name(name: str, known: Iterable[str], instead: str) -> str:
    """The one of ``known`` that ``name`` means, whatever its case and punctuation: "Fashion_MNIST", "cifar10".

    Args:
        instead: the end of the message for a name that is none of them: where other data are read.
    """
    names = {_bare(one): one for one in known}
    found = names.get(_bare(name)) if isinstance(name, str) else None
    if found is not None:
        return found
    close = [names[one] for one in get_close_matches(_bare(str(name)), names, n=3)]
    guess = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise ValueError(f"unknown data set {name!r}{guess}: known are {', '.join(sorted(names.values()))}; {instead}.")


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
