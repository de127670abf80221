"""Settings of an index, and limits of the gates that a version of it passes before it is published."""

from typing import Literal

from pydantic import Field, model_validator

from lsr_prod.config.section import FieldType, Location, Section, TableLocation
from lsr_prod.errors import ConfigError
from lsr_prod.storage.formats.index import Analyzer

_NEEDED_FILES = (
    ("min_overlap", "canary_queries"),
    ("max_p95_ms", "canary_queries"),
    ("max_loss", "judged_queries"),
    ("max_loss", "judged_qrels"),
)  # limit of a gate, and the file that it reads


class IndexSettings(Section):
    """Index version of a sparse table, and its publication."""

    table: TableLocation = Field(min_length=1)
    """folder or URI of the sparse table; encode.table if the file has the section encode"""
    bundle: Location = Field(min_length=1)
    """folder or URI of the bundle that the table was encoded with, copied into the index; encode.bundle if the file has
    the section encode"""
    output: Location = Field(min_length=1)
    """folder or URI of the index; a folder must be visible to all nodes, for a URI each node needs scratch in TMPDIR
    for the shards that it builds"""
    table_version: int | None = Field(None, ge=0)
    """version of the table; default: the newest"""
    shards: int = Field(1, ge=1)
    """number of shards; at most the number of buckets of the table"""
    dk: int | None = Field(None, ge=1)
    """maximum terms per document in the postings, heaviest first; default: all stored terms"""
    text_fields: list[str] = Field(["title", "text"])
    """stored fields that Tantivy indexes for BM25; inference-free queries take document frequencies from them"""
    analyzer: Analyzer = "english"
    """how text_fields and queries become words: english, another language whose words are stemmed, simple (lower case
    only), or bigrams (pairs of characters where Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese is written)"""
    bm25: bool = False
    """also build impact postings for the words of text_fields, for hybrid search; false: only Tantivy has them"""
    attributes: dict[str, FieldType] | None = None
    """stored fields that queries can filter, sort and count by, with their types; default: all that are not in
    text_fields, with the types of the table. Texts of a string field can be read as another type of source.types; those
    that do not fit are counted, and are no value"""
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


class GatesSettings(Section):
    """Limits of the gates before a publication; a gate without a limit is off."""

    min_documents: int | None = Field(None, ge=0)
    """gate documents: refuse a version with fewer documents"""
    max_shrink: float = Field(0.5, ge=0, le=1)
    """gate documents: refuse a version that loses more than this share of the documents"""
    max_growth: float | None = Field(None, ge=0, allow_inf_nan=False)
    """gate documents: refuse a version that grows by more than this share"""
    max_quarantine_share: float | None = Field(None, ge=0, le=1)
    """gate quarantine: largest share of bad rows among all rows of the table"""
    max_empty_share: float | None = Field(None, ge=0, le=1)
    """gate empty: largest share of documents without a term"""
    max_bytes_per_document: float | None = Field(None, gt=0, allow_inf_nan=False)
    """gate size: bytes of the shards per document"""
    max_impact_error: float | None = Field(0.2, ge=0, allow_inf_nan=False)
    """gate impact_error: largest mean error of an impact, as a share of the mean weight"""
    max_clipped_share: float | None = Field(0.001, ge=0, le=1)
    """gate clipped_weights: largest share of weights above the largest impact; jobs warn above it"""
    max_lost: int | None = Field(0, ge=0)
    """gate completeness of the job reindex: largest number of ids that are missing, stale or doubled in the table or in
    the version, and of files that cannot be read to their end"""
    verify: Literal["sample", "all"] = "sample"
    """gate completeness: compare the text and the id of a sample of at least 100,000 ids and at most one of 64, or of
    all ids with their stored fields; the source is read whole in any case"""
    golden_queries: Location | None = None
    """gate golden: JSON lines, file or URI: _id, text, must (ids of documents), and k (default 10)"""
    min_golden: float = Field(1.0, ge=0, le=1)
    """gate golden: smallest share of golden queries that find all of their documents"""
    canary_queries: Location | None = None
    """gates overlap and latency: queries as in evaluate, file or URI"""
    canary_sample: int = Field(200, ge=1)
    """gates overlap and latency: number of canary queries to answer"""
    canary_k: int = Field(10, ge=1, le=1000)
    """gate overlap: hits per query that are compared"""
    min_overlap: float | None = Field(None, ge=0, le=1)
    """gate overlap: smallest mean share of the current version's hits that are found again"""
    max_p95_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    """gate latency: milliseconds from text to hits, 95th percentile"""
    judged_queries: Location | None = None
    """gate quality: queries as in evaluate, file or URI"""
    judged_qrels: Location | None = None
    """gate quality: relevance judgments as in evaluate, file or URI"""
    measure: str = Field("nDCG@10", min_length=1)
    """gate quality: measure, as named by ir_measures"""
    max_loss: float | None = Field(None, ge=0, le=1)
    """gate quality: refuse a version whose measure is lower than the current one's by more than this and
    significantly"""
    significance: float = Field(0.05, gt=0, lt=1)
    """gate quality: level of the paired randomization test, one-sided"""
    threshold: float = Field(0.0, ge=0, le=1)
    """overlap threshold of all queries that gates answer: share of the query terms"""

    @model_validator(mode="after")
    def _limits_have_their_queries(self) -> "GatesSettings":
        for limit, name in _NEEDED_FILES:
            if getattr(self, limit) is not None and getattr(self, name) is None:
                raise ConfigError(f"gates.{name}", f"gates.{limit} needs it", f"give a file, or remove gates.{limit}")
        return self
