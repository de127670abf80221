"""The embedded query library: open a published index and search it.

::

    searcher = Searcher.open("index")
    recent = field("year") >= 2020
    for hit in searcher.search("how do locks work", k=10, overlap_threshold=0.4, filter=recent).hits:
        print(hit.doc_id, hit.score, hit.overlap)

It needs formats, numpy, pyarrow, tantivy and tokenizers; onnxruntime only to encode text, obstore only to fetch
remote indexes.
"""

from lsr_prod.search.array_search import ArrayResult
from lsr_prod.search.observers import Observer, PrometheusObserver
from lsr_prod.search.parallel_searcher import ParallelSearcher
from lsr_prod.search.query.filter_types import filter_from_json
from lsr_prod.search.query.filters import Filter, field
from lsr_prod.search.query.query_text import text_query, words_query
from lsr_prod.search.query.search_request import Hybrid, Options
from lsr_prod.search.search_result import Contribution, Explanation, Facet, Hit, QueryTerm, SearchResult
from lsr_prod.search.searcher import Searcher

__all__ = [
    "ArrayResult",
    "Contribution",
    "Explanation",
    "Facet",
    "Filter",
    "Hit",
    "Hybrid",
    "Observer",
    "Options",
    "ParallelSearcher",
    "PrometheusObserver",
    "QueryTerm",
    "SearchResult",
    "Searcher",
    "field",
    "filter_from_json",
    "text_query",
    "words_query",
]
