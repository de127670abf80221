"""Status of a sparse table: its chain of plans, their waves, and the rows of its quarantine. Reads only."""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.commit.fence import Attempt, newest_attempt
from lsr_prod.encoding.commit.markers import MARKERS_FOLDER
from lsr_prod.encoding.plans.plan_header import PLAN_FORMAT, PlanHeader
from lsr_prod.encoding.plans.successors import plan_chain, read_record, record_name, successor_of
from lsr_prod.encoding.tables import Table, open_table, quarantine_rows, sparse_table
from lsr_prod.encoding.tables.live_rows import total_live_rows
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.logs import get_log, without_credentials
from lsr_prod.storage import Store, publications
from lsr_prod.storage.formats.digests import parsing

log = get_log(__name__)

_SILENT_S = 600.0
"""Time without a finished cell, a commit or a new attempt after which an attempt counts as silent."""
_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """Status of a plan."""

    plan: str  # its digest
    kind: str  # ``full`` or ``increment``
    # ``finished``, ``given up``, ``running``, ``silent`` (no activity for ten minutes), ``ended`` (its process
    # does not exist any more), ``not started``, or ``unreadable`` (another release wrote it, or its record was
    # deleted)
    state: str
    waves: int | None  # number of its waves; None: unreadable
    waves_done: int  # committed waves
    cells: int | None = None  # cells of the wave that is next; None: unknown
    cells_done: int = 0  # finished cells of that wave
    host: str | None = None  # host name of the newest attempt
    pid: int | None = None  # its process id
    attempt: int | None = None  # its number
    started_at: str | None = None  # its start, UTC, ISO 8601
    # its newest finished cell, commit or start, in seconds since 1970 by the clock of the store
    last_activity: float | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a sparse table."""

    table: str  # its URI
    version: int | None  # newest version; None: no run has created the table yet
    committed_at: float | None  # time of that version, in seconds since 1970 by the clock of the store
    documents: int  # rows of that version
    # the chain of plans, oldest first, without old plans that ``lsr-prod table maintain`` left out of it; then plans
    # that were saved and are not in the chain
    plans: tuple[PlanStatus, ...]

    def result(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Rows to show; every field that is given must match."""

    reason: str | None = None  # quarantine reason
    source: str | None = None  # a text in the location of the source file
    plan: str | None = None  # first digits of the digest of the plan
    wave: int | None = None  # number of the wave

    def has_part(self, part: quarantine_rows.QuarantinePart) -> bool:
        """Return whether rows of a part can match."""
        return part.plan.startswith(self.plan or "") and self.wave in (None, part.wave)

    def has_row(self, row: dict[str, Any]) -> bool:
        """Return whether a row of such a part matches."""
        return self.reason in (None, row["reason"]) and (self.source or "") in (row["source"] or "")


def table_status(store: Store) -> TableStatus:
    """Return the status of the table in a folder. It may be called while jobs write to the table."""
    saved = [name.rpartition("/")[2] for name in store.names(f"{sparse_table.PROTOCOL_FOLDER}/plans")]
    digests = [name.removesuffix(".json") for name in saved if name.endswith(".json")]
    table = open_table(store)  # after the plans: a plan is saved before its table is created
    if table is None:
        if not digests:
            raise ArtifactError(f"{store.uri} is not a table; give the folder or URI of encode.table")
        return TableStatus(store.uri, None, None, 0, tuple(_plan(store, None, digest, None) for digest in digests))
    if sparse_table.PLAN_PROPERTY not in table.properties:
        raise ArtifactError(f"{store.uri} is not a sparse table of lsr-prod encode; give the folder of encode.table")
    commits = table.log()
    committed_at = commits[-1].committed_at if commits else None
    done = partial(waves_done, table)
    chain = plan_chain(store, table.properties[sparse_table.PLAN_PROPERTY], done)
    followed = {*chain[:-1]}
    plans = [_plan(store, table, digest, committed_at, in_chain=True, followed=digest in followed) for digest in chain]
    # A plan with a successor is an old one that the chain leaves out (``maintenance.vacuum``).
    outside = [digest for digest in digests if digest not in chain]
    others = [_plan(store, table, digest, None) for digest in outside if successor_of(store, digest, done) is None]
    return TableStatus(store.uri, table.version, committed_at, total_live_rows(table.file_table()), (*plans, *others))


def published_version(index: Store) -> dict[str, Any] | None:
    """Return the current publication of an index: number, version, time and note; None: nothing is published."""
    found = publications.find_current_publication(index)
    return None if found is None else asdict(found)


def wait_for_other_attempts(table: Store, *, poll_s: float = _POLL_S) -> None:
    """Return when no other process encodes into a table: it has finished, has ended, or has been silent for long."""
    seen: dict[tuple[str, int | None], tuple[float | None, float]] = {}
    me, active = (socket.gethostname(), os.getpid()), True
    while active:
        active = False
        for plan in table_status(table).plans:
            if plan.state not in ("running", "silent") or (plan.host, plan.pid) == me:
                continue
            attempt, now = (plan.plan, plan.attempt), time.monotonic()
            if attempt not in seen:
                fields = {"table": table.uri, "plan": plan.plan, "host": plan.host, "pid": plan.pid}
                log.info("waiting for another attempt", extra={"fields": fields})
            # The time of its activity is of the clock of the store: it counts how long that stays the same here.
            if attempt not in seen or seen[attempt][0] != plan.last_activity:
                seen[attempt] = plan.last_activity, now
            active |= now - seen[attempt][1] < _SILENT_S
        time.sleep(poll_s * active)


def read_quarantine(
    store: Store, wanted: QuarantineFilter, show: Callable[[dict[str, Any]], None], limit: int
) -> Counter[tuple[str, str]]:
    """Give matching rows to ``show``, and count all of them.

    Returns:
        Number of matching rows by reason and state.
    """
    known = quarantine_rows.quarantine_parts(store)
    parts = [part for part in known if wanted.has_part(part)]
    if known and not parts:
        name, value = ("--plan", wanted.plan) if wanted.plan is not None else ("--wave", wanted.wave)
        plans = ", ".join(sorted({part.plan[:12] for part in known})[:5])
        raise ConfigError(name, f"{store.uri} has no rows of {value}", f"its plans are {plans}")
    counts: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for row in quarantine_rows.quarantined_rows(store, part):
            if not wanted.has_row(row):
                continue
            counts[row["reason"] or "", part.state] += 1
            if limit > 0:
                limit -= 1
                place = {"plan": part.plan, "wave": part.wave, "state": part.state}
                show({**place, **row, **{name: without_credentials(row[name] or "") for name in ("source", "detail")}})
    return counts


def _plan(
    store: Store,
    table: Table | None,
    digest: str,
    committed_at: float | None,
    *,
    in_chain: bool = False,
    followed: bool = False,
) -> PlanStatus:
    done = 0 if table is None else waves_done(table, digest)
    attempt = newest_attempt(store, digest)
    header = _header(store, digest)
    if header is None:
        return PlanStatus(digest, "unknown", "unreadable", None, done)
    done = min(done, header.waves)
    kind = "full" if header.base is None else "increment"
    who: dict[str, Any] = {} if attempt is None else {
        "host": attempt.host, "pid": attempt.pid, "attempt": attempt.number, "started_at": attempt.started_at
    }  # fmt: skip
    if done == header.waves and in_chain:
        return PlanStatus(digest, kind, "finished", header.waves, done, **who)
    if followed:
        return PlanStatus(digest, kind, "given up", header.waves, done, **who)
    times, cells_done = _activity(store, digest, done)
    if attempt is not None:
        times.append(attempt.began)
        if committed_at is not None and committed_at >= attempt.began:
            times.append(committed_at)
    newest = max(times, default=None)
    return PlanStatus(
        digest, kind, _state(attempt, newest), header.waves, done, _cells(header, done), cells_done, **who,
        last_activity=newest,
    )  # fmt: skip


def _header(store: Store, digest: str) -> PlanHeader | None:
    """Return the header of a plan; None: it was deleted, or another release wrote it."""
    document = read_record(store, digest)
    with parsing(f"{store.uri}/{record_name(digest)} is damaged", "restore it"):
        if document is None or document["format"] != PLAN_FORMAT:
            return None
        return PlanHeader.from_json(document)


def _activity(store: Store, digest: str, wave: int) -> tuple[list[float], int]:
    """Return the times of the markers of a wave and of the next one, and the number of those of the wave."""
    times: list[float] = []
    count = 0
    for number in (wave, wave + 1):
        entries = store.entries(f"{MARKERS_FOLDER}/{digest}/{number}")
        markers = [entry.modified for entry in entries if entry.name.endswith(".json")]
        times += markers
        count = len(markers) if number == wave else count
    return times, count


def _state(attempt: Attempt | None, last_activity: float | None) -> str:
    if attempt is None or last_activity is None:
        return "not started"
    if attempt.host == socket.gethostname() and not _exists(attempt.pid):
        return "ended"
    return "silent" if time.time() - last_activity > _SILENT_S else "running"


def _exists(pid: int) -> bool:
    """Return whether a process of this host exists; signal 0 is not delivered."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _cells(header: PlanHeader, wave: int) -> int:
    """Return the number of cells of a wave."""
    if header.base is None:
        return header.cells
    buckets = int(header.encode["buckets"])
    return header.cells // buckets * (buckets * (wave + 1) // header.waves - buckets * wave // header.waves)
