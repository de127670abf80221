"""Settings of serving on a Ray cluster."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.location import Location
from lsr_prod.config.section import Section


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
