"""Encode a corpus into a sparse table, exactly once.

``job`` runs an encode job. ``prepare`` checks its inputs, ``plans`` pins the files to read, and ``pipeline`` reads
the next wave while the actors of a pool (``actors``) encode one and the one before is committed. An actor encodes the
rows of a cell (``cells``), writes its parts and leaves a marker; blocks that crashed an actor run in ``isolation``.
``commit`` commits a wave as a whole. The names in ``__all__`` are imported on first use: the processes of
``isolation``, which start again after every crash, need neither Ray nor the job.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.encoding.job import check_encode, encode_corpus
    from lsr_prod.encoding.results import Counts
    from lsr_prod.encoding.run_records import EncodeSummary
    from lsr_prod.encoding.tables.sparse_table import table_digest

__all__ = ["Counts", "EncodeSummary", "check_encode", "encode_corpus", "table_digest"]

_HOMES = {
    "Counts": "lsr_prod.encoding.results",
    "EncodeSummary": "lsr_prod.encoding.run_records",
    "check_encode": "lsr_prod.encoding.job",
    "encode_corpus": "lsr_prod.encoding.job",
    "table_digest": "lsr_prod.encoding.tables.sparse_table",
}

__getattr__ = lazy_names(__name__, _HOMES)
