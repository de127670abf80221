"""Lines of small text files by path or URI, numbered for error messages."""

from collections.abc import Iterator, Mapping
from functools import partial

from lsr_prod.errors import SourceError
from lsr_prod.storage.folders import open_text

_LONGEST = 1 << 24


def numbered_lines(place: str, options: Mapping[str, str] | None = None) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of every line that is not blank, without its line end."""
    try:
        with open_text(place, options) as file:
            for number, line in enumerate(iter(partial(file.readline, _LONGEST + 1), ""), start=1):
                if len(line) > _LONGEST:
                    raise SourceError(f"line {number} of {place} has more than {_LONGEST} characters; shorten it")
                text = line.removeprefix("\ufeff") if number == 1 else line
                if text.strip():
                    yield number, text.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(f"{place} cannot be read as UTF-8 ({error}); convert the file to UTF-8") from error
