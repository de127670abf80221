"""Highlighting: the places in a stored text of the words that a query contains, or of its terms."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lsr_prod.inference.terms.analysis import distinct_words

MAX_CHARACTERS = 100_000  # of a text that are read
MAX_SPANS = 100  # places of one text

Spans = tuple[tuple[int, int], ...]

_WORD = re.compile(r"[^\W_]+")
_STARTS = ("Ġ", "▁")  # mark the start of a word in byte-level BPE and SentencePiece
_INNER = "##"  # marks a piece inside a word in WordPiece


def words_to_find(text: str | None, terms: Iterable[str]) -> frozenset[str]:
    """Return the stems of the words of a query."""
    whole = (term[1:] if term[:1] in _STARTS else term for term in terms if not term.startswith(_INNER))
    texts = [*([] if text is None else [text[:MAX_CHARACTERS]]), *(term for term in whole if _WORD.fullmatch(term))]
    return frozenset(word for each in texts for word in distinct_words(each))


def find_words(text: str, wanted: frozenset[str]) -> Spans:
    """Return start and end, in characters, of the first words of a text with a wanted stem."""
    found = []
    for word in _WORD.finditer(text, 0, MAX_CHARACTERS):
        if not wanted.isdisjoint(_stems(word[0])):
            found.append(word.span())
            if len(found) == MAX_SPANS:
                break
    return tuple(found)


def highlight_fields(values: Mapping[str, Any], names: Sequence[str], wanted: frozenset[str]) -> dict[str, Spans]:
    """Return the places in stored fields; none in fields without a text."""
    texts = {name: values[name] for name in names}
    return {name: find_words(text, wanted) if isinstance(text, str) else () for name, text in texts.items()}


@lru_cache(maxsize=1 << 14)
def _stems(word: str) -> tuple[str, ...]:
    return tuple(distinct_words(word))
