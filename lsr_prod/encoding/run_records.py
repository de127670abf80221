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

from lsr_prod.encoding.busy import BusyTime
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.inference import Counters
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.threads import in_threads

log = get_log(__name__)

WAVES_FOLDER = f"{PROTOCOL_FOLDER}/waves"
RUNS_FOLDER = f"{PROTOCOL_FOLDER}/runs"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class WaveRecord:
    """Record of a committed wave.

    Attributes:
        wave: its number.
        attempt: attempt that committed it.
        committed_at: UTC, ISO 8601, by the clock of the driver.
        rows_in: rows of the source.
        rows_out: rows of the source that became documents.
        reasons: quarantined rows by reason.
        encoded: documents that went through the model in this run.
        deleted: documents that were deleted from the table.
        reused_cells: cells that an earlier attempt had finished.
        parts: new parts of the table.
        bytes: their bytes.
        tokens: tokens that the model read, padding excluded.
        padded_tokens: tokens of the batches, padding included.
        encoders: encoders that ran at the commit.
        model_seconds: duration of the calls of the model, summed over blocks.
        began: start of the model in the first block, in seconds since the start of the run; None: no block.
        ended: end of the last block, likewise.
        commit_seconds: duration of the commit.
        weights: weights of the encoded documents; 0 in records of earlier releases.
        clipped: those above the largest impact.
    """

    wave: int
    attempt: int
    committed_at: str
    rows_in: int
    rows_out: int
    reasons: Mapping[str, int]
    encoded: int
    deleted: int
    reused_cells: int
    parts: int
    bytes: int
    tokens: int
    padded_tokens: int
    encoders: int
    model_seconds: float
    began: float | None
    ended: float | None
    commit_seconds: float
    weights: int = 0
    clipped: int = 0

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
    """Record of a finished run that committed waves.

    Attributes:
        attempt: its number among the attempts at the plan.
        finished_at: UTC, ISO 8601.
        summary: the fields of ``EncodeSummary``.
    """

    attempt: int
    finished_at: str
    summary: Mapping[str, Any]


R = TypeVar("R", WaveRecord, RunRecord)


class WaveRecorder:
    """Writes the record of each wave of a run after its commit."""

    def __init__(self, table: Store, plan: str, attempt: int, *, started: float, encoders: Callable[[], int]) -> None:
        self._table, self._plan, self._attempt, self._started = table, plan, attempt, started
        self._encoders = encoders
        self._costs: dict[int, WaveCosts] = {}

    def spend(self, wave: int, costs: WaveCosts) -> None:
        """Add the work spent on a wave, or on a part of it that was lost."""
        known = self._costs.get(wave)
        self._costs[wave] = costs if known is None else known + costs

    def committed(self, result: WaveResult, commit_seconds: float) -> None:
        """Write the record of a wave; a failure is logged, as the wave is committed already."""
        costs = self._costs.pop(result.wave, WaveCosts(0, 0, Counters(), BusyTime()))
        busy, ran = costs.busy, costs.busy.span_s > 0
        parts = [part for cell in result.cells for part in cell.parts]
        record = WaveRecord(
            wave=result.wave,
            attempt=self._attempt,
            committed_at=_now(),
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            reasons=dict(sorted(result.reasons.items())),
            encoded=costs.encoded,
            deleted=result.deleted,
            reused_cells=costs.reused_cells,
            parts=len(parts),
            bytes=sum(part.size for part in parts),
            tokens=costs.counters.tokens,
            padded_tokens=costs.counters.padded_tokens,
            encoders=self._encoders(),
            model_seconds=round(busy.seconds, 3),
            began=round(busy.first - self._started, 3) if ran else None,
            ended=round(busy.last - self._started, 3) if ran else None,
            commit_seconds=round(commit_seconds, 3),
            weights=result.weights,
            clipped=result.clipped,
        )
        try:
            _save(self._table, f"{WAVES_FOLDER}/{self._plan}/{result.wave:06d}.json", record)
        except StorageError as error:
            fields = {"wave": result.wave, "error": str(error)}
            log.warning("record of the wave not written", extra={"fields": fields})


def save_run(table: Store, plan: str, attempt: int, summary: Mapping[str, Any]) -> None:
    """Write the record of a finished run; a failure is logged, as the waves are committed already."""
    try:
        _save(table, f"{RUNS_FOLDER}/{plan}/{attempt:06d}.json", RunRecord(attempt, _now(), dict(summary)))
    except StorageError as error:
        log.warning("record of the run not written", extra={"fields": {"plan": plan, "error": str(error)}})


def read_waves(table: Store, plan: str) -> list[WaveRecord]:
    """Return the records of the waves of a plan, by number; waves of earlier releases have none."""
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
