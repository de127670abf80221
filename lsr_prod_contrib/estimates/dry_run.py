"""A dry run of an encode job: its plan, sizes, requests and hours; nothing is written.

The coefficients of ``count_requests`` were counted at an S3 endpoint: runs of 2 waves with 8 parts and of 5 waves with
20 parts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lsr_prod.corpus.filelist import KEPT, READ, REMOVED
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod_contrib.estimates.cluster import RequestKind
from lsr_prod_contrib.estimates.measured import EncodeRun, read_runs
from lsr_prod_contrib.estimates.source_preview import preview_source

_DIFFERENT = 1.5  # ratio of two amounts of work from which on a line through them has a meaning
_PART_BYTES = 256_000_000
_PARTS_PER_WAVE = 1000
_READ_BYTES = 8_000_000


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


def describe_run(work: Work, measured: Sequence[str]) -> dict[str, Any]:
    """Return the figures of a run that has been checked but not begun; of measured runs follow the hours."""
    runs = read_runs(measured) if measured else None
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


def print_dry_run(summary: Mapping[str, Any]) -> None:
    """Print the figures of ``describe_run``."""
    print_table("dry run", {name.replace("_", " "): value for name, value in scalars(summary).items()})
    _print_source(summary["source"])


def _print_source(source: Mapping[str, Any]) -> None:
    """Print what the first rows of a source hold, and what is wrong with them."""
    formats = ", ".join(f"{name} ({count:,})" for name, count in source["formats"].items())
    print_table("source", {"files by format": formats, "first files": ", ".join(source["first_files"])})
    rows = f"of the first {source['rows_looked_at']:,} rows"
    for title, key in (("columns", "columns"), ("problems", "problems")):
        if source[key]:
            headings = [name.replace("_", " ") for name in source[key][0]]
            print_columns(f"{title} {rows}", headings, [[*row.values()] for row in source[key]])
    if documents := {f"{n}. {one['id']}": one["text"] for n, one in enumerate(source["first_documents"], 1)}:
        print_table("first documents, as the model sees them", documents)
