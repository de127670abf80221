"""What an encode run would do: its plan, sizes, requests and hours, without writing anything."""

import math
from typing import Any

import numpy as np

from lsr_prod.corpus.filelist import KEPT, READ, REMOVED
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.prepare import Work
from lsr_prod.operations.measured import MeasuredRuns
from lsr_prod.operations.requests import RunSize, count_requests
from lsr_prod.operations.speed import fit_speed
from lsr_prod.tables import open_table

_READ_BYTES = 8_000_000  # of the source per request


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
    return found


def _kind(work: Work, done: int) -> str:
    if done == work.plan.waves:
        return "nothing to do"
    if done:
        return "continues the newest plan"
    return "first plan of a new table" if work.plan.base is None else "increment"
