"""The text of a query: valid Unicode of a bounded length, so that no text occupies tokenizers for seconds."""

from lsr_prod.errors import ConfigError
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.sparse_query import check_text

MAX_QUERY_BYTES = 1 << 15
_SMALLEST, _LARGEST = 1 << 6, 1 << 26


def check_max_bytes(max_bytes: int) -> int:
    """Validate the limit of texts."""
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or not _SMALLEST <= max_bytes <= _LARGEST:
        raise ConfigError(
            "max_query_bytes",
            f"{shorten(max_bytes)} is not possible",
            f"give an integer from {_SMALLEST} to {_LARGEST}",
        )
    return max_bytes


def cut_text(text: str, max_bytes: int) -> str:
    """Return the text if it has at most ``max_bytes`` in UTF-8, else its beginning.

    The text is cut after a whole word if one ends in the second half of the limit, else after a whole character.
    """
    check_text(text)
    if 4 * len(text) <= max_bytes:
        return text
    # A character has at least one byte, so the limit needs no more characters; one more tells whether a word ends.
    whole = text[: max_bytes + 1].encode()
    if len(whole) <= max_bytes:
        return text
    cut = whole[:max_bytes].decode(errors="ignore")
    if text[len(cut)].isspace():
        return cut
    words = cut.rsplit(None, 1)
    return words[0] if len(words) == 2 and 2 * len(words[0].encode()) >= max_bytes else cut
