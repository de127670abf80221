"""Publish a version."""

from pathlib import Path

from lsr_prod.indexing.publish import Inspect, Publisher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import Publication


def publish(
    index: Store | Path, version: str, *, parent: int | None = None, inspect: Inspect | None = None, note: str = ""
) -> Publication:
    """Publish a version of an index after its gates."""
    return Publisher(index, inspect=inspect, note=note).publish(version, parent)
