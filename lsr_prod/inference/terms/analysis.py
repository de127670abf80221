"""Split texts into words as Tantivy's ``en_stem`` does, for documents and for queries."""

import tantivy

# Tantivy's Python API does not expose the analyzers of an index, so this rebuilds "en_stem".
_ANALYZER = (
    tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    .filter(tantivy.Filter.remove_long(40))
    .filter(tantivy.Filter.lowercase())
    .filter(tantivy.Filter.stemmer("English"))
    .build()
)


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, with repetitions."""
    return list(_ANALYZER.analyze(text))


def distinct_words(text: str) -> list[str]:
    """Return the distinct words of a text in the order of their first occurrence."""
    return list(dict.fromkeys(_ANALYZER.analyze(text)))
