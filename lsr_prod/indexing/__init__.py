"""Build index versions from a sparse table, publish them, and roll them back.

``build`` is the job. ``index_plan`` checks its inputs, ``compare`` finds the changes of the table, and ``derive`` makes
the next version: ``base_shard`` builds base shards, ``delta`` chooses the documents of a delta shard, ``tombstones``
hides superseded documents. ``publish`` makes a version current after its gates, ``takedown`` hides documents on
request, and ``garbage`` deletes files that no kept publication names. ``text_index`` (``lsr_prod.Index``) indexes texts
in one call, without jobs; the core wheel is enough for it, so the names of the package are imported on first use.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.indexing.build import build_index
    from lsr_prod.indexing.garbage import collect_garbage
    from lsr_prod.indexing.publish import rollback
    from lsr_prod.indexing.takedown import delete_documents, restore_documents

__all__ = ["build_index", "collect_garbage", "delete_documents", "restore_documents", "rollback"]

__getattr__ = lazy_names(
    __name__,
    {
        "build_index": "lsr_prod.indexing.build",
        "collect_garbage": "lsr_prod.indexing.garbage",
        "delete_documents": "lsr_prod.indexing.takedown",
        "restore_documents": "lsr_prod.indexing.takedown",
        "rollback": "lsr_prod.indexing.publish",
    },
)
