"""The Tantivy index of a shard: BM25 over the text, and the documents that have some words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tantivy

from lsr_prod.storage.formats.shard_format import ORDINAL_FIELD, TANTIVY_FOLDER, TEXT_FIELD


@dataclass(frozen=True, slots=True)
class BooleanShard:
    """The Tantivy index of one shard."""

    index: Any
    documents: int  # of the shard

    @classmethod
    def open(cls, shard: Path, documents: int) -> "BooleanShard":
        """Open the Tantivy index in the folder of a shard."""
        index = tantivy.Index.open(str(shard / TANTIVY_FOLDER))
        index.config_reader("manual")  # otherwise a thread opens what is in the folder later, unverified
        return cls(index, documents)

    def bm25(self, tokens: Sequence[str], k: int) -> tuple[int, list[tuple[float, int]]]:
        """Rank by BM25 (Tantivy's k1 = 1.2, b = 0.75) with this shard's document frequencies.

        Returns:
            Number of documents with at least one token, and (score, ordinal) of the best ``k``.
        """
        terms = [(tantivy.Occur.Should, self._term(token)) for token in tokens]
        return self._search(tantivy.Query.boolean_query(terms), k) if terms else (0, [])

    def match_tokens(self, tokens: Sequence[str]) -> list[int]:
        """Return the ordinals of all documents whose text contains every token."""
        terms = tantivy.Query.boolean_query([(tantivy.Occur.Must, self._term(token)) for token in tokens])
        found = self._search(tantivy.Query.const_score_query(terms, 1.0), self.documents)[1]
        return sorted(ordinal for _, ordinal in found)

    def _term(self, token: str) -> Any:
        return tantivy.Query.term_query(self.index.schema, TEXT_FIELD, token, index_option="freq")

    def _search(self, query: Any, limit: int) -> tuple[int, list[tuple[float, int]]]:
        searcher = self.index.searcher()
        found = searcher.search(query, limit=max(1, limit), count=True)
        ordinals = searcher.fast_field_values(ORDINAL_FIELD, [address for _, address in found.hits])
        return found.count, list(zip((score for score, _ in found.hits), ordinals, strict=True))[:limit]
