"""All sections of a deployment; settings of indexes, gates, serving, report pages, Ray and object stores."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lsr_prod.config import corpus, model, section, training
from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.config.evaluate import EvaluateSettings, SweepSettings, TuneSettings
from lsr_prod.config.mine import MineSettings, ScoreSettings
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage.formats.index_format import Analyzer
from lsr_prod.storage.location import is_credential, normalize_options

# File that gates read, and their limits.
_LIMITS = {
    "canary_queries": ("min_overlap", "max_p95_ms"),
    "judged_queries": ("max_loss",),
    "judged_qrels": ("max_loss",),
}


class IndexSettings(section.Section):
    """Index version of a sparse table, and its publication."""

    table: section.TableLocation = Field(min_length=1)
    """folder or URI of the sparse table; encode.table if the file has the section encode"""
    bundle: section.Location = Field(min_length=1)
    """folder or URI of the bundle that the table was encoded with, copied into the index; encode.bundle if the file has
    the section encode"""
    output: section.Location = Field(min_length=1)
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
    attributes: dict[str, section.FieldType] | None = None
    """stored fields that queries can filter, sort and count by, with their types; default: all that are not in
    text_fields, with the types of the table; fields with lists always are. Texts of a string field can be read as
    another type of source.types; those that do not fit are counted, and are no value"""
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


class GatesSettings(section.Section):
    """Limits of the gates before a publication; a gate without a limit is off."""

    min_documents: int | None = Field(None, ge=0)
    """gate documents: refuse a version with fewer documents"""
    max_shrink: float = Field(0.5, ge=0, le=1)
    """gate documents: refuse a version that loses more than this share of the documents"""
    max_growth: float | None = Field(None, ge=0, allow_inf_nan=False)
    """gate documents: refuse a version that grows by more than this share"""
    max_quarantine_share: float | None = Field(None, ge=0, le=1)
    """gate quarantine: largest share of bad rows among the rows of the current files"""
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
    golden_queries: section.Location | None = None
    """gate golden: JSON lines, file or URI: _id, text, must (ids of documents), and k (default 10)"""
    min_golden: float = Field(1.0, ge=0, le=1)
    """gate golden: smallest share of golden queries that find all of their documents"""
    canary_queries: section.Location | None = None
    """gates overlap and latency: queries as in evaluate, file or URI"""
    canary_sample: int = Field(200, ge=1)
    """gates overlap and latency: number of canary queries to answer"""
    canary_k: int = Field(10, ge=1, le=1000)
    """gate overlap: hits per query that are compared"""
    min_overlap: float | None = Field(None, ge=0, le=1)
    """gate overlap: smallest mean share of the current version's hits that are found again"""
    max_p95_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    """gate latency: milliseconds from text to hits, 95th percentile"""
    judged_queries: section.Location | None = None
    """gate quality: queries as in evaluate, file or URI"""
    judged_qrels: section.Location | None = None
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

    def _problems(self) -> section.Problems:
        yield from self._unread("min_golden", need="golden_queries", met=self.golden_queries is not None)
        yield from self._unread("canary_sample", "canary_k", need="canary_queries", met=self.canary_queries is not None)
        yield from self._unread("measure", "significance", need="max_loss", met=self.max_loss is not None)
        yield from self._unread("verify", need="max_lost", met=self.max_lost is not None)
        asked = self.golden_queries or self.canary_queries or self.judged_queries
        yield from self._unread("threshold", need="queries to answer", met=asked is not None)

    @model_validator(mode="after")
    def _limits_have_their_queries(self) -> "GatesSettings":
        for name, limits in _LIMITS.items():
            given = [f"gates.{limit}" for limit in limits if getattr(self, limit) is not None]
            if given and getattr(self, name) is None:
                raise ConfigError(f"gates.{name}", f"{given[0]} needs it", f"give a file, or remove {given[0]}")
            if getattr(self, name) is not None and not given:
                remedy = f"set gates.{' or gates.'.join(limits)}, or remove it"
                raise ConfigError(f"gates.{name}", "no gate reads it, because it has no limit", remedy)
        return self


class ServeSettings(section.Section):
    """Serving of a published index by Ray Serve."""

    index: section.Location = Field(min_length=1)
    """URI of the index, or its folder at the same path on every machine"""
    name: str = Field("lsr_prod", min_length=1, pattern="^[A-Za-z0-9_-]+$")
    """name of the Serve application"""
    shard_groups: int = Field(1, ge=1, le=1000)
    """number of deployments that the shards are distributed over; shard n belongs to group n % shard_groups; with 1
    there are no such deployments: each router opens all shards and searches them itself"""
    replicas: int = Field(2, ge=1)
    """replicas per shard group; with 2 or more, the loss of one causes no failed query"""
    routers: int | None = Field(None, ge=1)
    """replicas of the router, which encodes queries, asks all shard groups and merges the hits; default: as many as
    replicas, with --local no more than there are cores for"""
    threads: int = Field(1, ge=1)
    """queries that a replica, or a router that searches itself, matches concurrently"""
    concurrency: int = Field(16, ge=1, le=1000)
    """queries that a router sends to several shard groups concurrently"""
    queue: int = Field(512, ge=0, le=10_000)
    """queries that wait in a router at most; further ones are answered with 503 and Retry-After"""
    queue_s: float = Field(0.5, gt=0, le=3600)
    """seconds that a query may have to wait in a router, estimated from the last ones; otherwise it is answered with
    503 and Retry-After"""
    max_body_bytes: int = Field(1 << 20, ge=1 << 10, le=1 << 26)
    """maximum size of an HTTP request, bytes; a router holds up to concurrency + queue of them"""
    max_query_bytes: int = Field(1 << 15, ge=64, le=1 << 26)
    """longer texts of queries are cut before they are tokenized, bytes of UTF-8"""
    missing_groups: Literal["partial", "error"] = "partial"
    """answer of a query while a shard group is dead, or slower than the deadline: a partial result that names the
    missing groups, or an error"""
    encoder_threads: int = Field(1, ge=1)
    """ONNX Runtime threads that encode one query"""
    cpus: float = Field(1, ge=0)
    """cores that Ray reserves for each replica and router"""
    poll_seconds: float = Field(5, ge=0.05, le=86_400)
    """seconds between two checks for a new publication"""
    attempts: int = Field(5, ge=1, le=100)
    """maximum attempts of a call whose replicas die"""
    timeout_s: float = Field(30, ge=0.1, le=86_400)
    """timeout of a call to a replica, seconds"""
    http_host: str = Field("127.0.0.1", min_length=1)
    """address that the HTTP endpoint listens on"""
    http_port: int | None = Field(None, ge=1, le=65535)
    """port of the HTTP endpoint (POST /search); default: no HTTP endpoint"""

    @property
    def router_count(self) -> int:
        """Number of routers."""
        return self.replicas if self.routers is None else self.routers

    @property
    def reserved_cpus(self) -> float:
        """Cores that the application reserves."""
        return self.cpus * ((0 if self.shard_groups == 1 else self.shard_groups * self.replicas) + self.router_count)


class ReportSettings(section.Section):
    """Report pages that jobs write at their end; needs the extra ``pages``."""

    output: section.Location
    """folder or URI for the pages; pages of the same name are replaced"""
    cluster: section.LocalPath | None = None
    """YAML file with prices, as for lsr-prod table estimate, for the cost of encode runs"""
    sample: int = Field(2000, ge=1, le=100_000)
    """documents that the page of an index reads"""


class RaySettings(section.Section):
    """Ray cluster that runs the jobs."""

    address: str | None = None
    """address of the Ray cluster; default: RAY_ADDRESS if set, else a local cluster on loopback"""
    num_cpus: int | None = Field(None, ge=1)
    """cores of the local cluster; default: all cores of the machine"""


class StorageSettings(section.Section):
    """Access to object stores: s3://, gs://, az:// and abfss://."""

    options: dict[str, str] = Field(default_factory=dict)
    """options of object stores, for example aws_endpoint, aws_region or allow_http (docs/object-stores.md lists them);
    credentials come from the environment"""

    @field_validator("options", mode="before")
    def _known(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        for name in map(str, options):
            if is_credential(name):
                problem = "it is a credential"
                raise ConfigError(f"storage.options.{name}", problem, "set it in the environment, not in the file")
        return normalize_options(options)


class Deployment(section.Section):
    """All sections of a deployment; a job requires only the sections that it reads."""

    ray: RaySettings = RaySettings()
    """Ray cluster that runs the jobs"""
    storage: StorageSettings = StorageSettings()
    """access to object stores"""
    source: corpus.SourceSettings | None = None
    """the documents to encode"""
    mine: MineSettings | None = None
    """hard negatives for training pairs, from an index"""
    click_set: ClickSetSettings | None = None
    """evaluation sets and training pairs from a click log"""
    score: ScoreSettings | None = None
    """scores of a teacher for training rows"""
    train: training.TrainSettings | None = None
    """training of a model by a chain of stages"""
    export: model.ExportSettings | None = None
    """export of a model as an ONNX bundle"""
    encode: corpus.EncodeSettings | None = None
    """encoding of the documents into a sparse table"""
    index: IndexSettings | None = None
    """index version of a sparse table"""
    gates: GatesSettings = GatesSettings()
    """limits of the gates before a publication"""
    evaluate: EvaluateSettings | None = None
    """evaluation of a published index"""
    sweep: SweepSettings | None = None
    """sweep over models, prunings, thresholds and hybrid weights"""
    tune: TuneSettings | None = None
    """tuning of the hybrid weight and the threshold of an index"""
    maintain: corpus.MaintainSettings | None = None
    """maintenance of a sparse table"""
    vectors: VectorsSettings | None = None
    """exchange of vectors with other tools"""
    serve: ServeSettings | None = None
    """serving of an index on Ray Serve"""
    report: ReportSettings | None = None
    """pages that jobs write; a folder or URI, or a section"""

    @model_validator(mode="before")
    @classmethod
    def _what_encode_made(cls, sections: Any) -> Any:
        """Take table and bundle of the index from ``encode`` where the index does not name them."""
        if not isinstance(sections, dict):
            return sections
        encode, index = sections.get("encode"), sections.get("index")
        if not (isinstance(encode, dict) and isinstance(index, dict)):
            return sections
        made = {name: encode[name] for name in ("table", "bundle") if name in encode}
        return {**sections, "index": {**made, **index}}

    @field_validator("report", mode="before")
    def _folder(cls, report: Any) -> Any:
        return {"output": report} if isinstance(report, str) else report
