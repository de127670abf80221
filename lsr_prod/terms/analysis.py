"""The words of a text: what Tantivy's ``en_stem`` makes of it, for documents and for queries."""

import tantivy

__all__ = ["distinct_words", "words_of"]

# Tantivy's Python API gives no analyzer of an index away, so that "en_stem" is put together once more.
_ANALYZER = (
    tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    .filter(tantivy.Filter.remove_long(40))
    .filter(tantivy.Filter.lowercase())
    .filter(tantivy.Filter.stemmer("English"))
    .build()
)


def words_of(text: str) -> list[str]:
    """The words of a text in order, each as often as it occurs."""
    return list(_ANALYZER.analyze(text))


def distinct_words(text: str) -> list[str]:
    """The words of a text in the order of their first occurrence."""
    return list(dict.fromkeys(_ANALYZER.analyze(text)))
