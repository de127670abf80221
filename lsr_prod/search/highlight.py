"""Highlighting: the places in a stored text of the words that a query contains, or of its terms."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lsr_prod.inference.terms.analysis import distinct_words, find_places
from lsr_prod.storage.formats.index_format import Analyzer

MAX_CHARACTERS = 100_000  # of a text that are read
MAX_SPANS = 100  # places of one text

Spans = tuple[tuple[int, int], ...]

_WORD = re.compile(r"[^\W_]+")
_STARTS = ("Ġ", "▁")  # mark the start of a word in byte-level BPE and SentencePiece
_INNER = "##"  # marks a piece inside a word in WordPiece


def words_to_find(text: str | None, terms: Iterable[str], analyzer: Analyzer = "english") -> frozenset[str]:
    """Return the words of a query as the analyzer of the index makes them."""
    whole = (term[1:] if term[:1] in _STARTS else term for term in terms if not term.startswith(_INNER))
    texts = [*([] if text is None else [text[:MAX_CHARACTERS]]), *(term for term in whole if _WORD.fullmatch(term))]
    return frozenset(word for each in texts for word in distinct_words(each, analyzer))


def find_words(text: str, wanted: frozenset[str], analyzer: Analyzer = "english") -> Spans:
    """Return start and end, in characters, of the first wanted words of a text; places that overlap become one."""
    found: list[tuple[int, int]] = []
    for start, stop, word in find_places(text[:MAX_CHARACTERS], analyzer):
        if word in wanted:
            if found and start < found[-1][1]:
                start = found.pop()[0]
            elif len(found) == MAX_SPANS:
                break
            found.append((start, stop))
    return tuple(found)


def highlight_fields(
    values: Mapping[str, Any], names: Sequence[str], wanted: frozenset[str], analyzer: Analyzer
) -> dict[str, Spans]:
    """Return the places in stored fields; none in fields without a text."""
    texts = {name: values[name] for name in names}
    return {name: find_words(text, wanted, analyzer) if isinstance(text, str) else () for name, text in texts.items()}
