"""A sparse table becomes an index version, is published, and can be rolled back.

``build`` is the job, ``plan`` checks its inputs, ``derive`` makes the next version: ``changes`` finds what changed in
the table, ``shard`` builds one shard from ``rows`` with ``impacts`` and ``boolean``, ``delta`` one of what changed,
``tombstones`` hide what it replaces. ``publish`` makes a version current, ``takedown`` takes documents out of it, and
``collect`` deletes what nobody names any more.
"""

from lsr_prod.indexing.build import build_index
from lsr_prod.indexing.collect import collect_garbage
from lsr_prod.indexing.publish import publish, rollback
from lsr_prod.indexing.takedown import delete_documents, restore_documents

__all__ = ["build_index", "collect_garbage", "delete_documents", "publish", "restore_documents", "rollback"]
