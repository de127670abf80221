"""A dry run of an encode job: its plan, sizes, requests and hours; nothing is written.

The coefficients of ``count_requests`` were counted at an S3 endpoint: runs of 2 waves with 8 parts and of 5 waves with
20 parts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from lsr_prod.config.load import read_yaml
from lsr_prod.config.section import Section
from lsr_prod.corpus.filelist import KEPT, READ, REMOVED
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ConfigError
from lsr_prod.operations.measured import EncodeRun, MeasuredRuns
from lsr_prod.operations.source_preview import preview_source

RequestKind = Literal["put", "get", "list", "delete"]
REQUEST_KINDS: tuple[RequestKind, ...] = ("put", "get", "list", "delete")
_DIFFERENT = 1.5  # ratio of two amounts of work from which on a line through them has a meaning
_PART_BYTES = 256_000_000
_PARTS_PER_WAVE = 1000
_READ_BYTES = 8_000_000


class ClusterDescription(Section):
    """A cluster on which a corpus is to be encoded, and what it costs."""

    name: str = Field(min_length=1)
    """name of the cluster in the output"""
    nodes: int = Field(ge=1)
    """number of nodes that run encoder actors"""
    actors_per_node: int = Field(ge=1)
    """encoder actors per node, with as many threads as in the measured run"""
    speed: float = Field(gt=0, allow_inf_nan=False)
    """tokens per second of an actor, divided by those of the measured machine"""
    busy_share: float | None = Field(None, gt=0, le=1)
    """share of the time in which the encoders work; default: that of the measured run"""
    price_per_node_hour: float = Field(ge=0, allow_inf_nan=False)
    """price of one node for one hour"""
    storage_price_per_gb_month: float = Field(ge=0, allow_inf_nan=False)
    """price of 1 GB (1e9 bytes) in the object store for one month"""
    request_prices: dict[RequestKind, float]
    """price of 1,000 requests to the object store, for each of put, get, list and delete"""
    currency: str = Field("USD", min_length=1)
    """unit of all prices"""

    @field_validator("request_prices")
    @classmethod
    def _all_kinds(cls, prices: dict[RequestKind, float]) -> dict[RequestKind, float]:
        if missing := [kind for kind in REQUEST_KINDS if kind not in prices]:
            raise ValueError(f"the price of {', '.join(missing)} is missing; write 0 for requests that are free")
        if any(not 0 <= price < float("inf") for price in prices.values()):
            raise ValueError("a price is 0 or more")
        return prices

    @property
    def actors(self) -> int:
        """Encoder actors of all nodes."""
        return self.nodes * self.actors_per_node


def load_cluster(path: Path) -> ClusterDescription:
    """Read the description of a cluster."""
    value = read_yaml("--cluster", path)
    fields = ", ".join(ClusterDescription.model_fields)
    if not isinstance(value, dict):
        raise ConfigError("--cluster", f"{path} has no fields", f"describe the cluster by {fields}")
    try:
        return ClusterDescription.model_validate({str(name): each for name, each in value.items()})
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = ".".join(["--cluster", *(str(part) for part in found["loc"])])
        if found["type"] == "extra_forbidden":
            raise ConfigError(field, "there is no such field", f"available: {fields}") from error
        if found["type"] == "missing":
            raise ConfigError(field, "it is required, but was not given", f"set it in {path}") from error
        message = found["msg"].removeprefix("Value error, ")
        raise ConfigError(field, f"{found['input']!r} is not possible", message[0].lower() + message[1:]) from error


@dataclass(frozen=True, slots=True)
class Speed:
    """Duration of a run: ``fixed_s + tokens / (tokens_per_s * actors * busy_share)``."""

    fixed_s: float  # start, first read, last commit, in seconds
    tokens_per_s: float  # tokens per second of a busy actor
    busy_share: float  # share of the time between the first and the last block in which the actors work
    fixed_origin: Literal["measured", "computed"]  # where ``fixed_s`` comes from
    fixed_note: str  # how

    def seconds(self, tokens: float, actors: int, *, speed: float = 1.0, busy_share: float | None = None) -> float:
        """Return the duration of a run in seconds."""
        return self.fixed_s + tokens / (self.tokens_per_s * speed * actors * (busy_share or self.busy_share))


def fit_speed(runs: Sequence[EncodeRun]) -> Speed:
    """Fit the speed to one run, or to several of different sizes.

    The fixed part of one run is the time outside its first and last block. Of several runs it is the intercept of the
    line through their durations, by least squares.
    """
    work = np.array([run.tokens / run.actors for run in runs])
    spent = sum(run.encode_seconds * run.actors for run in runs)
    busy = min(sum(run.encode_seconds * run.actors * run.busy_share for run in runs) / spent, 1.0)
    if work.max() < _DIFFERENT * work.min():
        seconds_per_token = spent / sum(run.tokens for run in runs)
        fixed = float(np.mean([max(run.seconds - run.encode_seconds, 0.0) for run in runs]))
        return Speed(fixed, 1 / (seconds_per_token * busy), busy, "measured", "time outside the first and last block")
    seconds = np.array([run.seconds for run in runs])
    slope, intercept = np.polyfit(work, seconds, 1)
    if slope <= 0 or intercept < 0:
        shown = ", ".join(f"{run.tokens:,} tokens in {run.seconds:.1f} s" for run in runs)
        raise ConfigError(
            "--run",
            f"the durations do not lie on a line with a start of 0 s or more ({shown})",
            "measure again on an idle machine, with sizes that differ more, or give one run",
        )
    return Speed(float(intercept), float(1 / (slope * busy)), busy, "computed", f"line through {len(runs)} runs")


@dataclass(frozen=True, slots=True)
class RunSize:
    """Size of an encode run that makes a table."""

    reads: int  # requests that read the source
    parts: int  # parts of the table
    waves: int  # commits

    @classmethod
    def of_bytes(cls, source_bytes: int, table_bytes: int) -> "RunSize":
        """Return the size of a run with parts of 256 MB, 1,000 parts per wave, and one request per 8 MB of source."""
        parts = max(math.ceil(table_bytes / _PART_BYTES), 1)
        return cls(math.ceil(source_bytes / _READ_BYTES), parts, math.ceil(parts / _PARTS_PER_WAVE))


def count_requests(size: RunSize) -> dict[RequestKind, int]:
    """Return the requests of a run by kind; metadata of an object (HEAD) counts as ``get``.

    A part costs two objects, itself and its marker, and six requests that verify it. A wave looks for its ids in the
    part that each earlier wave wrote to the same bucket, with three requests each. A wave costs one object of the log,
    its record, and 35 reads and 11 lists to open tables. Nothing is deleted.
    """
    lookups = size.parts * (size.waves - 1) // 2
    return {
        "put": 2 * size.parts + 2 * size.waves + 9,
        "get": size.reads + 6 * size.parts + 3 * lookups + 35 * size.waves + 20,
        "list": 11 * size.waves + 35,
        "delete": 0,
    }


def describe_run(work: Work, runs: MeasuredRuns | None) -> dict[str, Any]:
    """Return the figures of a run that has been checked but not begun."""
    plan = work.plan
    table = open_table(work.table) if work.found else None
    done = 0 if table is None else min(waves_done(table, plan.digest), plan.waves)
    states = plan.files["state"].to_numpy()
    sizes = plan.sizes()
    left = 1 - done / plan.waves if plan.waves else 0.0
    size = RunSize(
        reads=math.ceil(plan.source_bytes * left / _READ_BYTES),
        parts=math.ceil(sizes["parts"] * left),
        waves=plan.waves - done,
    )
    requests = count_requests(size) if size.waves else dict.fromkeys(count_requests(size), 0)
    found: dict[str, Any] = {
        "table": work.table.uri,
        "plan": plan.digest,
        "follows": plan.base,
        "run": _kind(work, done),
        "files_to_read": int(np.sum(states == READ)),
        "files_kept": int(np.sum(states == KEPT)),
        "files_removed": int(np.sum(states == REMOVED)),
        **sizes,
        "waves_done": done,
        "actors": work.actors,
        **{f"{kind}_requests": number for kind, number in requests.items()},
    }
    if runs is not None:
        speed = fit_speed(runs.encode)
        source = sum(run.bytes_per_document * run.encoded for run in runs.encode)
        tokens = plan.source_bytes * left * sum(run.tokens for run in runs.encode) / source
        found |= {"tokens": round(tokens), "hours": speed.seconds(tokens, work.actors) / 3600 if left else 0.0}
    return found | {"source": preview_source(work)}


def _kind(work: Work, done: int) -> str:
    if done == work.plan.waves:
        return "nothing to do"
    if done:
        return "continues the newest plan"
    return "first plan of a new table" if work.plan.base is None else "increment"
