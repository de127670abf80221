"""Maintenance of tables: merge small parts and delete files that no kept version names."""

from lsr_prod.maintenance.compact import compact
from lsr_prod.maintenance.job import maintain
from lsr_prod.maintenance.vacuum import vacuum

__all__ = ["compact", "maintain", "vacuum"]
