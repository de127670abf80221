"""The embedded query library: open a published index, and ask it.

::

    searcher = Searcher.open("index")
    for hit in searcher.search("how do locks work", k=10, overlap_threshold=0.4).hits:
        print(hit.doc_id, hit.score, hit.overlap)

It needs formats, numpy, numba, pyarrow, tantivy and tokenizers; onnxruntime only to encode text.
"""

from lsr_prod.search.request import Hybrid
from lsr_prod.search.result import Contribution, Explanation, Hit, QueryTerm, SearchResult
from lsr_prod.search.searcher import Searcher

__all__ = ["Contribution", "Explanation", "Hit", "Hybrid", "QueryTerm", "SearchResult", "Searcher"]
