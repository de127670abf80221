"""The history of an index: its publications, their differences, and everything that its store keeps."""

from lsr_prod_contrib.publications.catalog import Catalog, CatalogEntry, HistoryEntry, read_catalog, read_history
from lsr_prod_contrib.publications.difference import (
    ChangedIds,
    Difference,
    changed_ids,
    compare_versions,
    version_bytes,
)

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
