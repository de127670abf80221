"""The sections of a deployment."""

from typing import Any, Literal

from pydantic import Field, field_validator

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.config.corpus import EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.evaluate import EvaluateSettings
from lsr_prod.config.gates import GatesSettings
from lsr_prod.config.index import IndexSettings
from lsr_prod.config.location import LocalPath, Location
from lsr_prod.config.mine import MineSettings, ScoreSettings
from lsr_prod.config.model import ExportSettings
from lsr_prod.config.section import Section
from lsr_prod.config.sweep import SweepSettings, TuneSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage.options import is_credential, normalize_options


class ServeSettings(Section):
    """Serving of a published index by Ray Serve."""

    index: Location = Field(
        min_length=1, description="URI of the index, or its folder at the same path on every machine"
    )
    name: str = Field("lsr_prod", min_length=1, pattern="^[A-Za-z0-9_-]+$", description="name of the Serve application")
    shard_groups: int = Field(
        1,
        ge=1,
        le=1000,
        description="number of deployments that the shards are distributed over; shard n belongs to group n % "
        "shard_groups; with 1 there are no such deployments: each router opens all shards and searches them itself",
    )
    replicas: int = Field(
        2, ge=1, description="replicas per shard group; with 2 or more, the loss of one causes no failed query"
    )
    routers: int | None = Field(
        None,
        ge=1,
        description="replicas of the router, which encodes queries, asks all shard groups and merges the hits; "
        "default: as many as replicas, with --local no more than there are cores for",
    )
    threads: int = Field(
        1, ge=1, description="queries that a replica, or a router that searches itself, matches concurrently"
    )
    concurrency: int = Field(
        16, ge=1, le=1000, description="queries that a router sends to several shard groups concurrently"
    )
    queue: int = Field(
        512,
        ge=0,
        le=10_000,
        description="queries that wait in a router at most; further ones are answered with 503 and Retry-After",
    )
    queue_s: float = Field(
        0.5,
        gt=0,
        le=3600,
        description="seconds that a query may have to wait in a router, estimated from the last ones; otherwise it is "
        "answered with 503 and Retry-After",
    )
    max_body_bytes: int = Field(
        1 << 20,
        ge=1 << 10,
        le=1 << 26,
        description="maximum size of an HTTP request, bytes; a router holds up to concurrency + queue of them",
    )
    max_query_bytes: int = Field(
        1 << 15,
        ge=64,
        le=1 << 26,
        description="longer texts of queries are cut before they are tokenized, bytes of UTF-8",
    )
    missing_groups: Literal["partial", "error"] = Field(
        "partial",
        description="answer of a query while a shard group is dead, or slower than the deadline: a partial result that "
        "names the missing groups, or an error",
    )
    encoder_threads: int = Field(1, ge=1, description="ONNX Runtime threads that encode one query")
    cpus: float = Field(1, ge=0, description="cores that Ray reserves for each replica and router")
    poll_seconds: float = Field(5, ge=0.05, le=86_400, description="seconds between two checks for a new publication")
    attempts: int = Field(5, ge=1, le=100, description="maximum attempts of a call whose replicas die")
    timeout_s: float = Field(30, ge=0.1, le=86_400, description="timeout of a call to a replica, seconds")
    http_host: str = Field("127.0.0.1", min_length=1, description="address that the HTTP endpoint listens on")
    http_port: int | None = Field(
        None, ge=1, le=65535, description="port of the HTTP endpoint (POST /search); default: no HTTP endpoint"
    )

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

    output: Location = Field(description="folder or URI for the pages; pages of the same name are replaced")
    cluster: LocalPath | None = Field(
        None, description="YAML file with prices, as for lsr-prod table estimate, for the cost of encode runs"
    )
    sample: int = Field(2000, ge=1, le=100_000, description="documents that the page of an index reads")


class RaySettings(Section):
    """Ray cluster that runs the jobs."""

    address: str | None = Field(
        None, description="address of the Ray cluster; default: RAY_ADDRESS if set, else a local cluster on loopback"
    )
    num_cpus: int | None = Field(
        None, ge=1, description="cores of the local cluster; default: all cores of the machine"
    )


class StorageSettings(Section):
    """Access to object stores: s3://, gs://, az:// and abfss://."""

    options: dict[str, str] = Field(
        default_factory=dict,
        description="options of object stores, for example aws_endpoint, aws_region or allow_http "
        "(docs/object-stores.md lists them); credentials come from the environment",
    )

    @field_validator("options", mode="before")
    @classmethod
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

    ray: RaySettings = Field(RaySettings(), description="Ray cluster that runs the jobs")
    storage: StorageSettings = Field(StorageSettings(), description="access to object stores")
    source: SourceSettings | None = Field(None, description="the documents to encode")
    mine: MineSettings | None = Field(None, description="hard negatives for training pairs, from an index")
    click_set: ClickSetSettings | None = Field(None, description="evaluation sets and training pairs from a click log")
    score: ScoreSettings | None = Field(None, description="scores of a teacher for training rows")
    train: TrainSettings | None = Field(None, description="training of a model by a chain of stages")
    export: ExportSettings | None = Field(None, description="export of a model as an ONNX bundle")
    encode: EncodeSettings | None = Field(None, description="encoding of the documents into a sparse table")
    index: IndexSettings | None = Field(None, description="index version of a sparse table")
    gates: GatesSettings = Field(GatesSettings(), description="limits of the gates before a publication")
    evaluate: EvaluateSettings | None = Field(None, description="evaluation of a published index")
    sweep: SweepSettings | None = Field(None, description="sweep over models, prunings, thresholds and hybrid weights")
    tune: TuneSettings | None = Field(None, description="tuning of the hybrid weight and the threshold of an index")
    maintain: MaintainSettings | None = Field(None, description="maintenance of a sparse table")
    vectors: VectorsSettings | None = Field(None, description="exchange of vectors with other tools")
    serve: ServeSettings | None = Field(None, description="serving of an index on Ray Serve")
    report: ReportSettings | None = Field(None, description="pages that jobs write; a folder or URI, or a section")

    @field_validator("report", mode="before")
    @classmethod
    def _folder(cls, report: Any) -> Any:
        return {"output": report} if isinstance(report, str) else report
