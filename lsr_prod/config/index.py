"""Settings of an index."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.location import Location, TableLocation
from lsr_prod.config.section import Section
from lsr_prod.formats.index import AttributeType

DocumentOrder = Literal["content", "id"]


class IndexSettings(Section):
    """Index version of a sparse table, and its publication."""

    table: TableLocation = Field(min_length=1)
    """folder or URI of the sparse table"""
    bundle: Location = Field(min_length=1)
    """folder or URI of the bundle that the table was encoded with; copied into the index"""
    output: Location = Field(min_length=1)
    """folder or URI of the index; a folder must be visible to all nodes, for a URI each node needs scratch in TMPDIR
    for the shards that it builds"""
    table_version: int | None = Field(None, ge=0)
    """version of the table; default: the newest"""
    shards: int = Field(1, ge=1)
    """number of shards; at most the number of buckets of the table"""
    dk: int | None = Field(None, ge=1)
    """maximum terms per document in the postings, heaviest first; default: all stored terms"""
    block_size: int = Field(256, ge=64, le=65536)
    """documents per document block"""
    compress: bool = False
    """store frequent terms of a block as bitmaps: postings take about a sixth fewer bytes"""
    order: DocumentOrder = "content"
    """order of documents in a shard. content: similar documents are adjacent, so queries read fewer blocks; id: by
    doc_id"""
    text_fields: list[str] = Field(["title", "text"])
    """stored fields that Tantivy indexes for BM25; inference-free queries take document frequencies from them"""
    bm25: bool = False
    """also build impact postings for the words of text_fields, for hybrid search; false: only Tantivy has them"""
    attributes: dict[str, AttributeType] = Field({})
    """stored fields that queries can filter by, with their types: string, int64, float64, bool or timestamp"""
    max_delta: float = Field(0.1, ge=0, le=1)
    """rebuild all shards when delta shards and tombstones exceed this share of the documents"""
    max_delta_shards: int = Field(8, ge=1)
    """maximum delta shards per version; above it, small delta shards are merged"""
    keep_publications: int = Field(10, ge=1)
    """number of newest publications that lsr-prod reindex keeps, besides pinned ones; files and tables that only older
    ones refer to are deleted"""
    keep_hours: float = Field(24, ge=0)
    """files younger than this are never deleted, nor versions that were current in this period; must exceed the
    duration of a build"""
    publish: bool = True
    """publish the version if it passes the gates"""
