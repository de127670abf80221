"""Counts of an encode run, summed wave by wave, and its records next to the table.

::

    _lsr_prod/totals/<plan>.json            quarantined rows and unread bytes of a finished plan
    _lsr_prod/waves/<plan>/<wave>.json      WaveRecord
    _lsr_prod/runs/<plan>/<attempt>.json    RunRecord

A later run of the plan reads the totals instead of counting rows. Records of waves and runs are never changed. They
serve pages and people only: no run depends on them, and a run that is killed between a commit and its record leaves a
gap. ``lsr-prod table maintain`` deletes all of these files with their plan.
"""

import datetime as dt
import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from lsr_prod import errors, logs
from lsr_prod.corpus.source_rows import remedy
from lsr_prod.encoding import prepare, results
from lsr_prod.encoding.tables import Table, live_rows, quarantine_rows, sparse_table
from lsr_prod.storage import Store, in_threads
from lsr_prod.storage.formats.digests import parsing, record_bytes

log = logs.get_log(__name__)

TOTALS_FOLDER = f"{sparse_table.PROTOCOL_FOLDER}/totals"
WAVES_FOLDER = f"{sparse_table.PROTOCOL_FOLDER}/waves"
RUNS_FOLDER = f"{sparse_table.PROTOCOL_FOLDER}/runs"

_FORMAT = 1
_NOT_REPORTED = ("superseded", "displaced", "weights", "padded_tokens")
_DERIVED = ("quarantined", "unread_share", "clipped_share", "padding_share", "docs_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeSummary(results.Counts):
    """Result of an encode run: its ``Counts``, times and places.

    Rows and bad rows of a first plan are those of all its runs, those of an increment are those of this run; displaced
    documents are not among ``rows_out``. ``unread_bytes`` are those of all runs of the plan, other counts those of this
    run.
    """

    documents: int  # rows of the table
    max_clipped_share: float | None  # ``gates.max_clipped_share``; the run warns above it
    waves: int  # waves of the plan
    waves_skipped: int  # waves that were committed before this run
    actors: int  # encoder actors
    threads_per_actor: int  # ONNX Runtime threads of each
    seconds: float  # duration of this run
    encode_seconds: float  # time from the start of the first to the end of the last block of this run
    busy_share: float  # share of that time in which the models of the encoders ran
    source_bytes: int  # bytes that the plan reads
    table_bytes: int  # bytes of the parts of the table
    impact_step: float  # weight of one impact unit
    impact_error: float  # mean error of the impacts of the probe
    table: str  # URI of the sparse table
    quarantine: str  # URI of the quarantine table
    plan: str  # digest of the plan
    base_plan: str | None  # digest of the previous plan
    bundle_digest: str  # of the encoder
    table_version: int  # newest version of the table
    # digest of the contents of that version; None if rows of its parts are deleted, since they would have to be read
    # (``encoding.table_digest``, ``lsr-prod table status --digest``)
    table_digest: str | None

    @property
    def unread_share(self) -> float:
        """Share of the source bytes of the plan that do not decode."""
        return self.unread_bytes / max(self.source_bytes, 1)

    @property
    def docs_per_s(self) -> float:
        """Encoded documents per second of this run."""
        return self.encoded / self.seconds

    def result(self) -> dict[str, Any]:
        """Return the figures by name, for the ``RESULT`` line."""
        names = [each.name for each in fields(self) if each.name not in _NOT_REPORTED]
        return {name: getattr(self, name) for name in (*names, *_DERIVED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRecord(results.Counts):
    """Record of a committed wave: its counts, with those of work that was lost in the same run, and its times."""

    wave: int  # its number
    attempt: int  # attempt that committed it
    committed_at: str  # UTC, ISO 8601, by the clock of the driver
    parts: int  # new parts of the table
    bytes: int  # their bytes
    encoders: int  # encoders that ran at the commit
    model_seconds: float  # duration of the calls of the model, summed over blocks
    began: float | None  # start of the model in the first block, in seconds since the start of the run; None: no block
    ended: float | None  # end of the last block, likewise
    commit_seconds: float  # duration of the commit

    @property
    def idle_share(self) -> float | None:
        """Share of the time between ``began`` and ``ended`` in which encoders ran no model; None: no block.

        Waves overlap, so an encoder that works for the next wave counts as idle here; ``busy_share`` of a run has no
        such error.
        """
        if self.began is None or self.ended is None or self.ended <= self.began or not self.encoders:
            return None
        return max(0.0, 1 - self.model_seconds / (self.encoders * (self.ended - self.began)))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Record of a finished run that committed waves."""

    attempt: int  # its number among the attempts at the plan
    finished_at: str  # UTC, ISO 8601
    summary: Mapping[str, Any]  # the fields of ``EncodeSummary``


R = TypeVar("R", WaveRecord, RunRecord)


def counts_before(work: prepare.Work, table: Table, waves: int) -> results.Counts:
    """Return the counts of the waves that earlier runs of the plan committed, as ``EncodeSummary`` reports them."""
    plan = work.plan
    saved = work.table.get(_saved_totals(plan.digest)) if waves >= plan.waves else None
    if saved is not None:
        with parsing(f"{work.table.uri}/{_saved_totals(plan.digest)} is damaged", "delete it"):
            values = json.loads(saved)
            reasons, unread = Counter(values["reasons"]), values["unread_bytes"]
    else:
        # Cell 0, which is in wave 0 of an increment, has all rows with unread bytes.
        counted = waves if plan.base is None else min(waves, 1)
        reasons, unread = quarantine_rows.quarantined_by_reason(work.quarantine, plan.digest, counted)
    if plan.base is not None:
        return results.Counts(unread_bytes=unread)
    documents = live_rows.total_live_rows(table.file_table())
    rows = documents + reasons.total()
    return results.Counts(rows_in=rows, rows_out=documents, quarantined_by_reason=reasons, unread_bytes=unread)


def save_counts(work: prepare.Work, counts: results.Counts) -> None:
    """Write the quarantined rows of a finished plan next to its table: a later run need not count them."""
    values = {"reasons": counts.quarantined_by_reason, "unread_bytes": counts.unread_bytes}
    work.table.put_new(_saved_totals(work.plan.digest), record_bytes(values))


def check_overflow(work: prepare.Work, before: results.Counts, result: results.WaveResult) -> None:
    """Refuse a wave that brings the bad share above the limit, before it is committed.

    The bad share is u + (1 - u) * r: u is the share of source bytes that were not read, r the share of bad rows
    among the rows that were.
    """
    wave = result.counts
    after = before + wave
    reasons, bad = Counter(after.quarantined_by_reason), after.quarantined
    rows = bad + before.document_rows + wave.rows_out
    unread, source_bytes = after.unread_bytes, work.plan.bytes_through(result.wave)
    few = work.plan.base is not None and rows < work.encode.bad_fraction_min_rows and not unread
    unread_share = unread / max(source_bytes, 1)
    if few or unread_share + (1 - unread_share) * bad / max(rows, 1) <= work.encode.max_bad_fraction:
        return
    source = work.source
    named = {"missing_id": f"missing_id: {source.column(source.id_field)}"}
    most = reasons.most_common(3)
    top = ", ".join(f"{named.get(reason, reason)} {count}" for reason, count in most)
    settings = dict.fromkeys(filter(None, (remedy(reason, source) for reason, _ in most)))
    solve = f"set {'; '.join(settings)}, " if settings else ""
    lost = f", and {unread} of {source_bytes} bytes were not read" if unread else ""
    raise errors.QuarantineOverflowError(
        f"{bad} of {rows} rows are bad ({top}){lost}, more than encode.max_bad_fraction = "
        f"{work.encode.max_bad_fraction}; wave {result.wave} was not committed; see the rows with: "
        f"lsr-prod table quarantine {shlex.quote(work.quarantine.uri)} --plan {work.plan.digest[:12]} --wave "
        f"{result.wave}; then {solve}raise the fraction, or fix the source and run again "
        "(with --abandon if waves of this plan are committed)"
    )


class WaveRecorder:
    """Writes the record of each wave of a run after its commit."""

    def __init__(self, table: Store, plan: str, attempt: int, *, started: float, encoders: Callable[[], int]) -> None:
        self._table, self._plan, self._attempt, self._started = table, plan, attempt, started
        self._encoders = encoders
        self._spent: dict[int, tuple[results.Counts, results.BusyTime]] = {}

    def spend(self, wave: int, work: results.Counts, busy: results.BusyTime) -> None:
        """Add the work spent on a wave, or on a part of it that was lost."""
        before, busy_before = self._spent.get(wave, (results.Counts(), results.BusyTime()))
        self._spent[wave] = before + work, busy_before + busy

    def committed(self, result: results.WaveResult, commit_seconds: float) -> None:
        """Write the record of a wave; a failure is logged, as the wave is committed already."""
        work, busy = self._spent.pop(result.wave, (results.Counts(), results.BusyTime()))
        ran = busy.span_s > 0
        parts = [part for cell in result.cells for part in cell.parts]
        record = WaveRecord(
            **asdict(work + result.counts),
            wave=result.wave,
            attempt=self._attempt,
            committed_at=_now(),
            parts=len(parts),
            bytes=sum(part.size for part in parts),
            encoders=self._encoders(),
            model_seconds=round(busy.seconds, 3),
            began=round(busy.first - self._started, 3) if ran else None,
            ended=round(busy.last - self._started, 3) if ran else None,
            commit_seconds=round(commit_seconds, 3),
        )
        try:
            _save(self._table, f"{WAVES_FOLDER}/{self._plan}/{result.wave:06d}.json", record)
        except errors.StorageError as error:
            log.warning("record of the wave not written", extra={"fields": {"wave": result.wave, "error": str(error)}})


def save_run(table: Store, plan: str, attempt: int, summary: Mapping[str, Any]) -> None:
    """Write the record of a finished run; a failure is logged, as the waves are committed already."""
    try:
        _save(table, f"{RUNS_FOLDER}/{plan}/{attempt:06d}.json", RunRecord(attempt, _now(), dict(summary)))
    except errors.StorageError as error:
        log.warning("record of the run not written", extra={"fields": {"plan": plan, "error": str(error)}})


def read_waves(table: Store, plan: str) -> list[WaveRecord]:
    """Return the records of the waves of a plan, by number."""
    return _read(table, f"{WAVES_FOLDER}/{plan}", WaveRecord)


def read_runs(table: Store, plan: str) -> list[RunRecord]:
    """Return the records of the finished runs of a plan, by attempt."""
    return _read(table, f"{RUNS_FOLDER}/{plan}", RunRecord)


def _saved_totals(plan: str) -> str:
    return f"{TOTALS_FOLDER}/{plan}.json"


def _save(table: Store, name: str, record: WaveRecord | RunRecord) -> None:
    table.put_new(name, record_bytes({"format": _FORMAT, **asdict(record)}))


def _read(table: Store, folder: str, kind: type[R]) -> list[R]:
    names = sorted(name for name in table.names(folder) if name.endswith(".json"))

    def read(name: str) -> R | None:
        data = table.get(name)
        with parsing(f"{table.uri}/{name} is damaged", "delete it"):
            value = json.loads(data or b"")
            if value.pop("format") != _FORMAT:
                return None  # a newer release wrote it
            return kind(**{one.name: value[one.name] for one in fields(kind) if one.name in value})

    return [record for record in in_threads(read, names) if record is not None]


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
