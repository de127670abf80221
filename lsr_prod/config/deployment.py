"""The sections of a deployment."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.config.corpus import EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.evaluate import EvaluateSettings
from lsr_prod.config.index import GatesSettings, IndexSettings
from lsr_prod.config.mine import MineSettings, ScoreSettings
from lsr_prod.config.model import ExportSettings
from lsr_prod.config.section import LocalPath, Location, Section
from lsr_prod.config.sweep import SweepSettings, TuneSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage.options import is_credential, normalize_options


class ServeSettings(Section):
    """Serving of a published index by Ray Serve."""

    index: Location = Field(min_length=1)
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
        replicas = 0 if self.shard_groups == 1 else self.shard_groups * self.replicas
        return self.cpus * (replicas + self.router_count)


class ReportSettings(Section):
    """Report pages that jobs write at their end; needs the extra ``pages``."""

    output: Location
    """folder or URI for the pages; pages of the same name are replaced"""
    cluster: LocalPath | None = None
    """YAML file with prices, as for lsr-prod table estimate, for the cost of encode runs"""
    sample: int = Field(2000, ge=1, le=100_000)
    """documents that the page of an index reads"""


class RaySettings(Section):
    """Ray cluster that runs the jobs."""

    address: str | None = None
    """address of the Ray cluster; default: RAY_ADDRESS if set, else a local cluster on loopback"""
    num_cpus: int | None = Field(None, ge=1)
    """cores of the local cluster; default: all cores of the machine"""


class StorageSettings(Section):
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
                raise ConfigError(
                    f"storage.options.{name}", "it is a credential", "set it in the environment, not in the file"
                )
        return normalize_options(options)


class Deployment(Section):
    """All sections of a deployment; a job requires only the sections that it reads."""

    ray: RaySettings = RaySettings()
    """Ray cluster that runs the jobs"""
    storage: StorageSettings = StorageSettings()
    """access to object stores"""
    source: SourceSettings | None = None
    """the documents to encode"""
    mine: MineSettings | None = None
    """hard negatives for training pairs, from an index"""
    click_set: ClickSetSettings | None = None
    """evaluation sets and training pairs from a click log"""
    score: ScoreSettings | None = None
    """scores of a teacher for training rows"""
    train: TrainSettings | None = None
    """training of a model by a chain of stages"""
    export: ExportSettings | None = None
    """export of a model as an ONNX bundle"""
    encode: EncodeSettings | None = None
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
    maintain: MaintainSettings | None = None
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
