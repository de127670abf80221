"""A sparse table becomes an index version, is published, and can be rolled back.

``build`` is the job, ``plan`` checks its inputs, ``shard`` builds one shard from ``rows`` with ``impacts`` and
``boolean``, ``publish`` makes a version current.
"""

from lsr_prod.indexing.build import build_index
from lsr_prod.indexing.publish import publish, rollback

__all__ = ["build_index", "publish", "rollback"]
