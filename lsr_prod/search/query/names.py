"""Names in calls of the search library: unknown options, and lists of fields."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import shorten


def check_options(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that a call does not have."""
    for name in given:
        if name not in known:
            raise QueryError(f"{call} has no option {shorten(name)}; {suggest(name, known)}")


def check_names(option: str, names: Any, what: str = "names") -> None:
    """Require a list of strings."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise QueryError(f"{option}={shorten(names)} is not possible; give a list of {what}")


def suggest(name: str, known: Collection[str]) -> str:
    """Return which of the known names was probably meant, or all of them."""
    close: Sequence[str] = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"it has: {', '.join(sorted(known))}"
