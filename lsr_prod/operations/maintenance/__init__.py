"""Maintenance of tables: merge small parts and delete files that nothing needs."""

from lsr_prod.operations.maintenance.compact import compact
from lsr_prod.operations.maintenance.job import compact_quarantine, maintain
from lsr_prod.operations.maintenance.vacuum import shorten_chain, vacuum

__all__ = ["compact", "compact_quarantine", "maintain", "shorten_chain", "vacuum"]
