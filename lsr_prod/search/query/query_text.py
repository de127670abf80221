"""The text of a query: valid Unicode of a bounded length, so that no text occupies tokenizers for seconds."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.search.query import filters, sparse_query

MAX_QUERY_BYTES = 1 << 15
_WORDS_BYTES = 1 << 12
_SMALLEST, _LARGEST = 1 << 6, 1 << 26


def check_max_bytes(max_bytes: int) -> int:
    """Validate the limit of texts."""
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or not _SMALLEST <= max_bytes <= _LARGEST:
        problem = f"{filters.shorten(max_bytes)} is not possible"
        raise ConfigError("max_query_bytes", problem, f"give an integer from {_SMALLEST} to {_LARGEST}")
    return max_bytes


def cut_text(text: str, max_bytes: int) -> str:
    """Return the text if it has at most ``max_bytes`` in UTF-8, else its beginning.

    The text is cut after a whole word if one ends in the second half of the limit, else after a whole character.
    """
    sparse_query.check_text(text)
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


Match = Literal["all", "any"]


@dataclass(frozen=True, slots=True)
class TextQuery(filters.Filter):
    """Documents that match a Boolean query, or contain words."""

    text: str  # the query
    # the query as a filter over tokens and attributes; None: it is not parsed yet
    parsed: filters.Filter | None = field(default=None, compare=False, repr=False)
    match: Match | None = None  # how many words of the text a document must contain; None: the text is a Boolean query

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        return {"text": self.text} if self.match is None else {"words": self.text, "match": self.match}


@dataclass(frozen=True, slots=True)
class TextTokens(filters.Filter):
    """Documents whose text contains all of the tokens; without tokens all documents. A part of a parsed query."""

    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a form for error messages; ``filter_from_json`` does not read it."""
        return {"tokens": list(self.tokens)}


def text_query(text: str) -> filters.Filter:
    """Return a filter for documents that match a Boolean query over text and attributes.

    ::

        searcher.search("how do locks work", filter=text_query("lock AND NOT thread") & (field("year") >= 2020))

    Args:
        text: such as ``lock AND NOT thread`` or ``(json OR xml) AND year:[2020 TO *]``, at most 4,096 characters; the
            search validates it. A filter has at most 10 of them.
    """
    return TextQuery(text)


def words_query(text: str, match: Match = "all") -> filters.Filter:
    """Return a filter for documents that contain the words of a text, which has no syntax and is never refused.

    ::

        searcher.search("connectors", filter=words_query("usb-c don't >>>"))

    Args:
        text: what somebody typed; its first 4,096 bytes are read, up to the end of a word. Spaces separate its words.
            A word such as ``don't`` or ``2021-08-22`` is found by all of its parts. Signs between spaces are ignored,
            and so are words that the analyzer of the index does not keep (40 bytes or more with ``english``); a text
            without any other word matches no document.
        match: "all": documents with all of the words; "any": with one of them.

    Raises:
        QueryError: ``text`` is not a string, or ``match`` is neither.
    """
    if not isinstance(text, str):
        raise QueryError(f"words={filters.shorten(text)} is not possible; give a string")
    if match not in ("all", "any"):
        raise QueryError(f"match={filters.shorten(match)} is not possible; give 'all' or 'any'")
    valid = text[: _WORDS_BYTES + 1].encode(errors="replace").decode()  # lone surrogates
    return TextQuery(cut_text(valid, _WORDS_BYTES), match=match)


def has_text_query(expression: filters.Filter) -> bool:
    """Return whether a filter has a text query."""
    match expression:
        case filters.Combination(_, parts):
            return any(map(has_text_query, parts))
        case filters.Negation(part):
            return has_text_query(part)
    return isinstance(expression, TextQuery)
