"""Settings of an index and of its evaluation."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.location import Location
from lsr_prod.config.section import Section
from lsr_prod.formats.attributes import AttributeType
from lsr_prod.storage.location import is_remote

__all__ = ["AttributeType", "DocumentOrder", "EvaluateSettings", "IndexSettings"]

DocumentOrder = Literal["content", "id"]


class IndexSettings(Section):
    """Index version of a sparse table, and its publication."""

    table: Location = Field(min_length=1, description="folder or URI of the sparse table")
    bundle: Location = Field(
        min_length=1, description="folder or URI of the bundle that the table was encoded with; copied into the index"
    )
    output: Location = Field(
        min_length=1,
        description="folder or URI of the index; a folder must be visible to all nodes, for a URI each node needs "
        "scratch in TMPDIR for the shards that it builds",
    )
    table_version: int | None = Field(None, ge=0, description="version of the table; default: the newest")
    shards: int = Field(1, ge=1, description="number of shards; at most the number of buckets of the table")
    dk: int | None = Field(
        None, ge=1, description="maximum terms per document in the postings, heaviest first; default: all stored terms"
    )
    block_size: int = Field(256, ge=64, le=65536, description="documents per document block")
    compress: bool = Field(
        False, description="store frequent terms of a block as bitmaps: postings take about a sixth fewer bytes"
    )
    order: DocumentOrder = Field(
        "content",
        description="order of documents in a shard. content: similar documents are adjacent, so queries read "
        "fewer blocks; id: by doc_id",
    )
    text_fields: list[str] = Field(
        ["title", "text"],
        description="stored fields that Tantivy indexes for BM25; inference-free queries take document "
        "frequencies from them",
    )
    bm25: bool = Field(
        False,
        description="also build impact postings for the words of text_fields, for hybrid search; false: only "
        "Tantivy has them",
    )
    attributes: dict[str, AttributeType] = Field(
        {},
        description="stored fields that queries can filter by, with their types: string, int64, float64, bool or "
        "timestamp",
    )
    max_delta: float = Field(
        0.1,
        ge=0,
        le=1,
        description="rebuild all shards when delta shards and tombstones exceed this share of the documents",
    )
    max_delta_shards: int = Field(
        8, ge=1, description="maximum delta shards per version; above it, small delta shards are merged"
    )
    keep_publications: int = Field(
        10,
        ge=1,
        description="number of newest publications that lsr-prod reindex keeps, besides pinned ones, also at "
        "index.publish_to; files and tables that only older ones refer to are deleted",
    )
    keep_hours: float = Field(
        24,
        ge=0,
        description="files younger than this are never deleted, nor versions that were current in this period; "
        "must exceed the duration of a build",
    )
    publish: bool = Field(True, description="publish the version if it passes the gates")
    publish_to: Location | None = Field(
        None,
        min_length=1,
        description="folder or URI that every publication is uploaded to, for readers; default: readers open "
        "index.output. Only if index.output is a folder",
    )

    @field_validator("publish_to")
    @classmethod
    def _one_remote_index(cls, publish_to: str | None, info: ValidationInfo) -> str | None:
        if publish_to is not None and is_remote(str(info.data.get("output", ""))):
            raise ValueError("index.output is an object store, which readers open; remove index.publish_to")
        return publish_to


class EvaluateSettings(Section):
    """Evaluation of a published index with queries and relevance judgments."""

    index: Location = Field(min_length=1, description="folder or URI of the index")
    queries: Location = Field(min_length=1, description="JSONL file or URI with _id and text per query")
    qrels: Location = Field(
        min_length=1,
        description="relevance judgments, file or URI: BEIR .tsv (query-id, corpus-id, score) or TREC qrels",
    )
    measures: list[str] = Field(
        ["nDCG@10", "RR@10", "R@10", "R@100", "P@10"], min_length=1, description="measures, as named by ir_measures"
    )
    thresholds: list[float] = Field(
        [0.0, 0.2, 0.4, 0.6],
        min_length=1,
        description="overlap thresholds to evaluate: shares of the query terms, 0 to 1",
    )
    k: int = Field(1000, ge=1, le=10_000, description="hits per query")
    qk: int | None = Field(None, ge=1, description="maximum terms of a query, heaviest first; default: all")
    bm25: bool = Field(
        True, description="also evaluate BM25: by the impact postings of words if the index has them, else by Tantivy"
    )
    runs: Location | None = Field(None, description="folder or URI for TREC run files; default: none are written")

    @field_validator("thresholds")
    @classmethod
    def _shares(cls, thresholds: list[float]) -> list[float]:
        for threshold in thresholds:
            if not 0 <= threshold <= 1:
                raise ValueError(f"{threshold} is not a share of the query terms; give values from 0 to 1")
        return thresholds
