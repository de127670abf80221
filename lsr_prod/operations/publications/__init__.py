"""The history of an index: its publications, their differences, and everything that its store keeps."""

from lsr_prod.operations.publications.catalog import Catalog, CatalogEntry, read_catalog
from lsr_prod.operations.publications.difference import (
    ChangedIds,
    Difference,
    changed_ids,
    compare_versions,
    version_bytes,
)
from lsr_prod.operations.publications.history import HistoryEntry, read_history

__all__ = [
    "Catalog",
    "CatalogEntry",
    "ChangedIds",
    "Difference",
    "HistoryEntry",
    "changed_ids",
    "compare_versions",
    "read_catalog",
    "read_history",
    "version_bytes",
]
