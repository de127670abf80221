"""Split texts into words, for documents and for queries.

Every analyzer first composes characters (Unicode NFC) and gives full-width Latin letters and half-width Katakana and
Hangul their usual width. NFKC would do more, but it makes ``JavaTM`` of ``Java™``.

``english`` and the other languages stem words, ``simple`` only changes them to lower case. ``bigrams`` is ``simple``,
except where scripts without spaces are written: ``東京都`` becomes ``東京`` and ``京都``, so that a part of a run is
found. A character there is a letter with its marks; one that stands alone is a word.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import tantivy

from lsr_prod.storage.formats.index_format import Analyzer

_WIDTH_FORMS = re.compile("[\uff01-\uffee]+")
_THAI_LAO_BURMESE_KHMER = [*map(chr, (*range(0x0E00, 0x0F00), *range(0x1000, 0x10A0), *range(0x1780, 0x1800)))]
_MARKS = "\u3099\u309a" + "".join(c for c in _THAI_LAO_BURMESE_KHMER if unicodedata.category(c)[0] == "M")
_LETTERS = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Hangul
) + "".join(c for c in _THAI_LAO_BURMESE_KHMER if unicodedata.category(c)[0] == "L")
# Ends of the words of english, and their number of bytes, are those of Tantivy's "en_stem". In other languages words
# may have marks that are no letters, for example the Tamil pulli, and letters of up to three bytes.
_WORD = rf"[\p{{Alphabetic}}\p{{N}}{_LETTERS}][\p{{Alphabetic}}\p{{N}}\p{{M}}{_LETTERS}]*"
_MAX_BYTES, _ENGLISH_MAX_BYTES = 120, 40
_CHARACTER = re.compile(f"[{_LETTERS}][{_MARKS}]*")
_RUN = re.compile(f"[{_LETTERS}][{_LETTERS}{_MARKS}]*")
# Marks, or other signs that are part of no word. Python composes n marks in up to n * n steps.
_MANY_MARKS = re.compile(r"(?:[^\w\s\x00-\u02ff]|[\uff9e\uff9f]){32}")


def words_of(text: str, analyzer: Analyzer = "english") -> list[str]:
    """Return the words of a text in order, with repetitions."""
    return list(tokenizer(analyzer).analyze(prepare(text, analyzer)))


def distinct_words(text: str, analyzer: Analyzer = "english") -> list[str]:
    """Return the distinct words of a text in the order of their first occurrence."""
    return list(dict.fromkeys(words_of(text, analyzer)))


def find_places(text: str, analyzer: Analyzer) -> Iterator[tuple[int, int, str]]:
    """Yield start, stop and word of each word of a text; start and stop are places in the text, and rise."""
    composed, sources = _compose(text)
    spaced = composed
    found: list[tuple[int, int, str]] = []
    if analyzer == "bigrams":
        spaced = _RUN.sub(lambda run: " " * len(run[0]), composed)
        for run in _RUN.finditer(composed):
            found += [(run.start() + start, run.start() + stop, run[0][start:stop]) for start, stop in _pairs(run[0])]
    tokens = tokenizer(analyzer).pre_tokenize(spaced).tokens
    found += [(token.char_offset_from, token.char_offset_to, token.text) for token in tokens]
    for start, stop, word in sorted(found):
        yield sources[start], sources[bisect_right(sources, sources[stop - 1])], word


def prepare(text: str, analyzer: Analyzer) -> str:
    """Return the text of which ``tokenizer`` makes the words."""
    if text.isascii():
        return text
    text = _normalize(text)
    if analyzer != "bigrams":
        return text
    return _RUN.sub(lambda run: f" {' '.join(run[0][start:stop] for start, stop in _pairs(run[0]))} ", text)


@cache
def tokenizer(analyzer: Analyzer) -> Any:
    """Return Tantivy's analyzer of a prepared text."""
    # Tantivy's Python API does not expose the analyzers of an index, so this rebuilds "en_stem".
    split = tantivy.Tokenizer.simple() if analyzer == "english" else tantivy.Tokenizer.regex(_WORD)
    builder = (
        tantivy.TextAnalyzerBuilder(split)
        .filter(tantivy.Filter.remove_long(_ENGLISH_MAX_BYTES if analyzer == "english" else _MAX_BYTES))
        .filter(tantivy.Filter.lowercase())
    )
    if analyzer not in ("simple", "bigrams"):
        builder = builder.filter(tantivy.Filter.stemmer(analyzer))
    return builder.build()


def _normalize(text: str) -> str:
    if unicodedata.is_normalized("NFKC", text):
        return text
    text = _cut_marks(text)
    return unicodedata.normalize("NFC", _WIDTH_FORMS.sub(lambda forms: unicodedata.normalize("NFKC", forms[0]), text))


def _cut_marks(text: str) -> str:
    """Return a text of equal length without long runs of marks."""
    return _MANY_MARKS.sub(lambda marks: f"{marks[0][:-1]} ", text)


def _pairs(run: str) -> list[tuple[int, int]]:
    """Return start and end of each pair of neighboring characters of a run, or of its only character."""
    spans = [character.span() for character in _CHARACTER.finditer(run)]
    return [(start, stop) for (start, _), (_, stop) in pairwise(spans)] or spans


def _compose(text: str) -> tuple[str, Sequence[int]]:
    """Return the normalized text; and for each of its characters, and for its end, the place in the text it is from."""
    if text.isascii() or _normalize(text) == text:
        return text, range(len(text) + 1)
    text = _cut_marks(text)
    parts, sources, start = [], [], 0
    for stop in range(1, len(text) + 1):
        if stop == len(text) or _is_boundary(text[start:stop], text[stop]):
            parts.append(_normalize(text[start:stop]))
            sources += [start] * len(parts[-1])
            start = stop
    return "".join(parts), [*sources, len(text)]


def _is_boundary(before: str, after: str) -> bool:
    """Return whether a character is neither a mark nor composed with those before it."""
    if after.isascii() or unicodedata.combining(after):
        return after.isascii()
    composed = _normalize(after)
    return not unicodedata.combining(composed[0]) and _normalize(before + after) == _normalize(before) + composed
