"""Records of encode runs next to their table: one per committed wave, one per finished run. They are never changed.

::

    _lsr_prod/waves/<plan>/<wave>.json      WaveRecord
    _lsr_prod/runs/<plan>/<attempt>.json    RunRecord

They serve pages and people only: no run depends on them, and a run that is killed between a commit and its record
leaves a gap. ``lsr-prod table maintain`` deletes them with their plan.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from lsr_prod.encoding.results import BusyTime, Counts, WaveResult
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, in_threads
from lsr_prod.storage.formats.digest import record_bytes

log = get_log(__name__)

WAVES_FOLDER = f"{PROTOCOL_FOLDER}/waves"
RUNS_FOLDER = f"{PROTOCOL_FOLDER}/runs"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRecord(Counts):
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


class WaveRecorder:
    """Writes the record of each wave of a run after its commit."""

    def __init__(self, table: Store, plan: str, attempt: int, *, started: float, encoders: Callable[[], int]) -> None:
        self._table, self._plan, self._attempt, self._started = table, plan, attempt, started
        self._encoders = encoders
        self._spent: dict[int, tuple[Counts, BusyTime]] = {}

    def spend(self, wave: int, work: Counts, busy: BusyTime) -> None:
        """Add the work spent on a wave, or on a part of it that was lost."""
        before, busy_before = self._spent.get(wave, (Counts(), BusyTime()))
        self._spent[wave] = before + work, busy_before + busy

    def committed(self, result: WaveResult, commit_seconds: float) -> None:
        """Write the record of a wave; a failure is logged, as the wave is committed already."""
        work, busy = self._spent.pop(result.wave, (Counts(), BusyTime()))
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
        except StorageError as error:
            log.warning("record of the wave not written", extra={"fields": {"wave": result.wave, "error": str(error)}})


def save_run(table: Store, plan: str, attempt: int, summary: Mapping[str, Any]) -> None:
    """Write the record of a finished run; a failure is logged, as the waves are committed already."""
    try:
        _save(table, f"{RUNS_FOLDER}/{plan}/{attempt:06d}.json", RunRecord(attempt, _now(), dict(summary)))
    except StorageError as error:
        log.warning("record of the run not written", extra={"fields": {"plan": plan, "error": str(error)}})


def read_waves(table: Store, plan: str) -> list[WaveRecord]:
    """Return the records of the waves of a plan, by number."""
    return _read(table, f"{WAVES_FOLDER}/{plan}", WaveRecord)


def read_runs(table: Store, plan: str) -> list[RunRecord]:
    """Return the records of the finished runs of a plan, by attempt."""
    return _read(table, f"{RUNS_FOLDER}/{plan}", RunRecord)


def _save(table: Store, name: str, record: WaveRecord | RunRecord) -> None:
    table.put_new(name, record_bytes({"format": _FORMAT, **asdict(record)}))


def _read(table: Store, folder: str, kind: type[R]) -> list[R]:
    names = sorted(name for name in table.names(folder) if name.endswith(".json"))

    def read(name: str) -> R | None:
        data = table.get(name)
        try:
            value = json.loads(data or b"")
            if value.pop("format") != _FORMAT:
                return None  # a newer release wrote it
            return kind(**{one.name: value[one.name] for one in fields(kind) if one.name in value})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{table.uri}/{name} is damaged ({error!r}); delete it") from error

    return [record for record in in_threads(read, names) if record is not None]


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
