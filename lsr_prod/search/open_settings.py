"""Validation of the settings of ``Searcher.open``, before anything is read."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from lsr_prod.errors import ConfigError
from lsr_prod.search import index_snapshot, observers
from lsr_prod.search.query.filters import shorten, suggest
from lsr_prod.search.query.query_text import check_max_bytes

_MAX_THREADS = 1024
_MAX_PUBLICATION = 10**15  # as in INDEX@NUMBER


class OpenSettings(TypedDict, total=False):
    """Keywords of ``Searcher.open``."""

    verify: index_snapshot.Verify
    encoder_threads: int
    observer: observers.Observer | None
    max_query_bytes: int
    bundle: str | Path | None
    cache: str | Path | None
    cache_bytes: int | None
    storage_options: Mapping[str, str] | None
    publication: int | None


# Unit and largest value of the settings that are positive integers.
_NUMBERS = {
    "encoder_threads": ("threads", _MAX_THREADS),
    "cache_bytes": ("bytes", 1 << 62),
    "publication": ("the number of a publication", _MAX_PUBLICATION),
}
_OPTIONAL = ("bundle", "observer", "cache", "cache_bytes", "storage_options", "publication")


def check_unknown(given: Iterable[str], *, more: Iterable[str] = ()) -> None:
    """Refuse settings that ``Searcher.open`` does not have."""
    known = [*OpenSettings.__annotations__, *more]
    for name in given:
        if name not in known:
            raise ConfigError(name, "open has no such setting", suggest(name, known))


def check_index(index: Any) -> None:
    """Require the folder or the URI of an index."""
    _check_path("index", index)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Validate the types and ranges of ``OpenSettings``."""
    for name, value in settings.items():
        if value is None and name in _OPTIONAL:
            continue
        if name in _NUMBERS:
            _check_number(name, value, *_NUMBERS[name])
        elif name in ("bundle", "cache"):
            _check_path(name, value)
        elif name == "verify" and not (value is True or value is False or (isinstance(value, str) and value == "lazy")):
            raise ConfigError(name, f"{shorten(value)} is not possible", "give 'lazy', True or False")
        elif name == "observer":
            absent = [name for name in ("answered", "failed", "opened") if not callable(getattr(value, name, None))]
            if absent:
                problem = f"{shorten(value)} has no method {', '.join(absent)}"
                raise ConfigError("observer", problem, "give an object with the methods of Observer, or None")
        elif name == "storage_options":
            _check_options(value)
        elif name == "max_query_bytes":
            check_max_bytes(value)


def _check_number(name: str, value: Any, unit: str, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise ConfigError(name, f"{shorten(value)} is not possible", f"give {unit} as an integer from 1 to {largest}")


def _check_path(name: str, value: Any) -> None:
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError(name, f"{shorten(value)} is not a place", "give a folder or a URI as a string or a Path")
    try:
        valid = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        problem = f"{shorten(str(value))} has characters that no path has"
        raise ConfigError(name, problem, "give a path of valid Unicode without a null character")


def _check_options(value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        # Values may be secrets: they are not repeated.
        raise ConfigError("storage_options", "they are not strings by name", "give a mapping from strings to strings")
