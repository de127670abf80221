"""The index and how it is measured."""

from typing import Literal

from pydantic import Field, field_validator

from lsr_prod.config.section import Section
from lsr_prod.formats.attributes import AttributeType

__all__ = ["AttributeType", "DocumentOrder", "EvaluateSettings", "IndexSettings"]

DocumentOrder = Literal["content", "id"]


class IndexSettings(Section):
    """A sparse table becomes an index version and is published."""

    table: str = Field(min_length=1, description="folder or URI of the sparse table")
    bundle: str = Field(min_length=1, description="folder of the bundle that made the table; copied into the index")
    output: str = Field(min_length=1, description="folder of the index")
    table_version: int | None = Field(None, ge=0, description="version of the table; unset: the newest")
    shards: int = Field(1, ge=1, description="shards; at most the table's buckets")
    dk: int | None = Field(
        None, ge=1, description="terms of a document in the postings, heaviest first; unset: all stored"
    )
    block_size: int = Field(256, ge=64, le=65536, description="documents in a block of the impact arrays")
    compress: bool = Field(
        False, description="postings in about a sixth fewer bytes: bitmaps for terms that a block is full of"
    )
    order: DocumentOrder = Field(
        "content", description="content: similar documents stand together, so that queries read less; id: by doc_id"
    )
    text_fields: list[str] = Field(
        ["title", "text"],
        description="stored fields that Tantivy indexes for BM25; their terms weigh queries that have no model",
    )
    bm25: bool = Field(
        False, description="give the words of text_fields postings too, for hybrid search; else Tantivy alone has them"
    )
    attributes: dict[str, AttributeType] = Field(
        {},
        description="stored fields that queries filter by, and their types: string, int64, float64, bool or timestamp",
    )
    max_shrink: float = Field(
        0.5, ge=0, le=1, description="gate: refuse to publish if this share of documents would vanish"
    )
    max_delta: float = Field(
        0.1,
        ge=0,
        le=1,
        description="all shards are built again once delta shards and tombstones hold this share of the documents",
    )
    max_delta_shards: int = Field(8, ge=1, description="delta shards of a version; small ones are merged beyond that")
    keep_publications: int = Field(
        10, ge=1, description="newest publications that lsr-prod reindex keeps; what only older ones name is deleted"
    )
    keep_hours: float = Field(
        24, ge=0, description="nothing younger is deleted, nor what was current since then; longer than a build takes"
    )
    publish: bool = Field(True, description="publish the version after its gates")
    publish_to: str | None = Field(
        None, min_length=1, description="folder or URI that readers open, kept in step; unset: index.output"
    )


class EvaluateSettings(Section):
    """Queries and judgements measure a published index."""

    index: str = Field(min_length=1, description="folder of the index")
    queries: str = Field(min_length=1, description="queries.jsonl with _id and text")
    qrels: str = Field(min_length=1, description="judgements: BEIR .tsv (query-id, corpus-id, score) or TREC qrels")
    measures: list[str] = Field(
        ["nDCG@10", "RR@10", "R@10", "R@100", "P@10"], min_length=1, description="names of ir_measures"
    )
    thresholds: list[float] = Field(
        [0.0, 0.2, 0.4, 0.6], min_length=1, description="overlap thresholds, shares of |q| in 0..1"
    )
    k: int = Field(1000, ge=1, le=10_000, description="hits a query")
    qk: int | None = Field(None, ge=1, description="terms of a query, heaviest first; unset: all")
    bm25: bool = Field(
        True, description="measure BM25 beside it: of the index's own impacts if it has them, else Tantivy's"
    )
    runs: str | None = Field(None, description="folder for TREC run files; unset: none are written")

    @field_validator("thresholds")
    @classmethod
    def _shares(cls, thresholds: list[float]) -> list[float]:
        for threshold in thresholds:
            if not 0 <= threshold <= 1:
                raise ValueError(f"{threshold} is no share of the query's terms; give values from 0 to 1")
        return thresholds
