"""What keeps tables small and readable: merge small parts, delete what nothing names."""

from lsr_prod.maintenance.compact import compact
from lsr_prod.maintenance.job import maintain
from lsr_prod.maintenance.vacuum import vacuum

__all__ = ["compact", "maintain", "vacuum"]
