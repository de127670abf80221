"""Filters on the text of documents: Boolean queries in the syntax of Tantivy's parser, see ``boolean_query``."""

from dataclasses import dataclass, field
from typing import Any

from lsr_prod.search.query.filters import Combination, Filter, Negation


@dataclass(frozen=True, slots=True)
class TextQuery(Filter):
    """Documents that match a Boolean query.

    Attributes:
        text: the query.
        parsed: the query as a filter over tokens and attributes; None: it is not parsed yet.
    """

    text: str
    parsed: Filter | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        return {"text": self.text}


@dataclass(frozen=True, slots=True)
class TextTokens(Filter):
    """Documents whose text contains all of the tokens; without tokens all documents. A part of a parsed query."""

    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a form for error messages; ``filter_from_json`` does not read it."""
        return {"tokens": list(self.tokens)}


def text_query(text: str) -> Filter:
    """Return a filter for documents that match a Boolean query over text and attributes.

    ::

        searcher.search("how do locks work", filter=text_query("lock AND NOT thread") & (field("year") >= 2020))

    Args:
        text: such as ``lock AND NOT thread`` or ``(json OR xml) AND year:[2020 TO *]``, at most 4,096 characters; the
            search validates it. A filter has at most 10 of them.
    """
    return TextQuery(text)


def has_text_query(expression: Filter) -> bool:
    """Return whether a filter has a text query."""
    match expression:
        case Combination(_, parts):
            return any(map(has_text_query, parts))
        case Negation(part):
            return has_text_query(part)
    return isinstance(expression, TextQuery)
