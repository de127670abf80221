"""A corpus becomes a sparse table, exactly once: plan, waves, encoder actors, the Delta committer, quarantine.

``job`` is the entry. ``sources`` and ``plan`` pin what is read, ``read`` turns a slice into rows, ``waves`` and
``actor`` encode a wave on Ray Data, ``parts`` names files by content, ``fence`` and ``commit`` keep it exactly once.
"""

from lsr_prod.encoding.job import check_encode, encode_corpus
from lsr_prod.encoding.table import table_digest

__all__ = ["check_encode", "encode_corpus", "table_digest"]
