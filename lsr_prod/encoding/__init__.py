"""A corpus becomes a sparse table, exactly once: plan, waves, encoder actors, the committer, quarantine.

``job`` is the entry. ``plan`` pins what is read, ``waves`` and ``pool`` hand its cells to ``actor``, ``cell`` turns one
into parts named by content, ``fence`` and ``commit`` keep it exactly once. Rows that cost an actor its life go through
``isolate``.
"""

from lsr_prod.encoding.job import check_encode, encode_corpus
from lsr_prod.encoding.summary import EncodeSummary
from lsr_prod.encoding.table import table_digest

__all__ = ["EncodeSummary", "check_encode", "encode_corpus", "table_digest"]
