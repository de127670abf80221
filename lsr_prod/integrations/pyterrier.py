"""Index and search in pipelines of PyTerrier (``pip install 'lsr_prod[pyterrier]'``); no part of it starts Java."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from lsr_prod.errors import ConfigError
from lsr_prod.extras import missing_extra
from lsr_prod.indexing.text_index import Index
from lsr_prod.search import Options, Searcher
from lsr_prod.search.query.filters import shorten

try:
    import pandas as pd
    import pyterrier as pt
except ModuleNotFoundError as error:
    raise missing_extra(error) from error

__all__ = ["SparseIndexer", "SparseRetriever"]


class SparseRetriever(pt.Transformer):
    """A transformer from queries to results: Q to R.

    Examples:
        >>> from lsr_prod.integrations.pyterrier import SparseIndexer
        >>> texts = [{"docno": "lock", "text": "hold a lock"}, {"docno": "date", "text": "parse a date"}]
        >>> retriever = SparseIndexer().index(texts)
        >>> (retriever % 1).search("a date").docno.tolist()
        ['date']

    Attributes:
        searcher: the index.
    """

    def __init__(self, index: str | Path | Searcher, *, num_results: int = 1000, **options: Unpack[Options]) -> None:
        """Open an index.

        Args:
            index: folder or URI of a published index, or an open one.
            num_results: maximum number of results per query.
            **options: options of every search; see ``Request``. The stored ``fields`` become columns of the results.
        """
        self.searcher = index if isinstance(index, Searcher) else Searcher.open(index)
        self._num_results, self._options = num_results, options

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Search for the vectors in the column ``query_toks`` (weight by term), or the texts in ``query``."""
        with pt.validate.any(inp, context=self) as given:
            given.query_frame(["query_toks"], mode="vectors")
            given.query_frame(["query"], mode="texts")
        k, options = self._num_results, self._options
        if given.mode == "vectors":
            results = [self.searcher.search_vector(vector, k, **options) for vector in inp["query_toks"]]
        else:
            results = self.searcher.search_batch(inp["query"].tolist(), k, **options)
        hits, fields = [hit for result in results for hit in result.hits], options.get("fields", ())
        rows = np.repeat(np.arange(len(inp)), [len(result.hits) for result in results])
        found = inp.drop(columns=["score", "rank", *fields], errors="ignore").iloc[rows].reset_index(drop=True)
        found["docno"] = pd.Series([hit.doc_id for hit in hits], dtype=object)
        found["score"] = pd.Series([hit.score for hit in hits], dtype="float64")
        ranks = [pt.model.FIRST_RANK + place for result in results for place in range(len(result.hits))]
        stored = {name: pd.Series([hit.fields[name] for hit in hits], dtype=object) for name in fields}
        return found.assign(**stored, rank=pd.Series(ranks, dtype="int64"))


class SparseIndexer(pt.Indexer):
    """An indexer of texts in a temporary folder; the encode and index jobs make an index that lasts.

    Examples:
        >>> from lsr_prod.integrations.pyterrier import SparseIndexer
        >>> retriever = SparseIndexer("bundle").index([{"docno": "1", "text": "a lock"}], fields=["text"])
        >>> retriever.search("locks").text.tolist()
        ['a lock']
    """

    def __init__(self, encoder: str | Path | None = None, *, text: str = "text", bm25: bool = False) -> None:
        """Choose the model.

        Args:
            encoder: folder or URI of a bundle; None: the words of the texts are the terms.
            text: name of the text in a document.
            bm25: whether words have postings, for the option ``hybrid`` of a search.
        """
        self._encoder, self._text, self._bm25 = encoder, text, bm25

    def index(self, iter: Iterable[Mapping[str, Any]], **options: Any) -> SparseRetriever:  # noqa: A002
        """Index documents and return their ``SparseRetriever``, which gets the options."""
        texts: dict[str, str] = {}
        for document in iter:
            if "docno" not in document or self._text not in document:
                raise ConfigError("iter", f"a document has {shorten(list(document))}", f"give docno and {self._text}")
            if document["docno"] in texts:
                raise ConfigError("iter", f"{shorten(document['docno'])} is repeated", "give every docno once")
            texts[document["docno"]] = document[self._text]
        return SparseRetriever(Index.from_texts(texts, self._encoder, bm25=self._bm25), **options)
