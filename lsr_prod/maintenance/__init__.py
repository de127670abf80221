"""Maintenance of tables: merge small parts and delete files that nothing needs."""

from lsr_prod.maintenance.compact import compact
from lsr_prod.maintenance.job import compact_quarantine, maintain
from lsr_prod.maintenance.plans import shorten_chain
from lsr_prod.maintenance.vacuum import vacuum

__all__ = ["compact", "compact_quarantine", "maintain", "shorten_chain", "vacuum"]
