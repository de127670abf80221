"""Parts live in ``lsr_prod.tables``."""

from lsr_prod.tables.part import Part, check_part, write_part

__all__ = ["Part", "check_part", "write_part"]
