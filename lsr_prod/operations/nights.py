"""Records of the nights of an index: how each run of the job reindex ended. What watches a deployment reads them.

A record is a file ``nights/<finished>.<outcome>.json`` of the index, created if absent: its name alone says when the
last good night was. A run that is killed leaves no record, so the age of the last good one is what to watch.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from lsr_prod.errors import ArtifactError, LsrError, StorageError
from lsr_prod.logs import get_log
from lsr_prod.operations.gates import GATES
from lsr_prod.storage import Store, publications
from lsr_prod.storage.formats.digests import parsing, record_bytes

if TYPE_CHECKING:
    from prometheus_client import Metric

log = get_log(__name__)
NightOutcome = Literal["published", "unchanged", "refused", "failed"]
GOOD: tuple[NightOutcome, ...] = ("published", "unchanged")
_FORMAT = 1
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(rf"nights/(\d{{8}}T\d{{12}}Z)\.({'|'.join(get_args(NightOutcome))})\.json")


@dataclass(frozen=True, slots=True)
class Night:
    """A finished run of the job reindex."""

    started_at: str  # UTC, ISO 8601
    finished_at: str  # UTC, ISO 8601
    # ``published`` a version; ``unchanged``: nothing to publish; ``refused`` by a gate; ``failed``
    outcome: NightOutcome
    refused: tuple[str, ...] = ()  # gates that refused the version
    quarantined_share: float | None = None  # quarantined rows of the source, of all its rows; None: it was not encoded
    # share of the time of the encoders in which their models ran; None: nothing was encoded
    busy_share: float | None = None
    error: str = ""  # class of the error that ended the run; "": none

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"format": _FORMAT, **asdict(self), "refused": list(self.refused)}


def recorded_night(
    index: Store,
    run: Callable[[], Mapping[str, Any]],
    *,
    published: Callable[[], int | None],
    refused: Callable[[], tuple[str, ...]],
) -> Mapping[str, Any]:
    """Run a night and record its end, also if it fails."""
    started, before = datetime.now(UTC), published()
    try:
        figures = run()
    except Exception as error:
        gates = refused()
        outcome: NightOutcome = "refused" if gates and isinstance(error, LsrError) else "failed"
        try:
            _write(index, started, outcome=outcome, refused=gates, error=type(error).__name__)
        except StorageError as unwritten:  # such as the full disk that ended the night: that error has to be seen
            log.warning("record of the night not written", extra={"fields": {"error": str(unwritten)}})
        raise
    rows = figures.get("encode.rows_in") or 0
    _write(
        index,
        started,
        outcome="published" if published() != before else "unchanged",
        quarantined_share=figures.get("encode.quarantined", 0) / rows if rows else None,
        busy_share=figures.get("encode.busy_share") if figures.get("encode.waves") else None,
    )
    return figures


def _write(index: Store, started: datetime, *, outcome: NightOutcome, **facts: Any) -> None:
    now = datetime.now(UTC)
    night = Night(started.isoformat(timespec="seconds"), now.isoformat(timespec="seconds"), outcome, **facts)
    index.put_new(f"nights/{now.strftime(_TIME)}.{outcome}.json", record_bytes(night.to_json()))


def last_nights(index: Store) -> tuple[Night | None, datetime | None]:
    """Return the last night, and the end of the last good one (UTC)."""
    found = _records(index)
    if not found:
        return None, None
    good = [record[1] for record in found if record[2] in GOOD]
    return _read(index, found[-1][0]), (datetime.strptime(good[-1], _TIME).replace(tzinfo=UTC) if good else None)


def delete_old_nights(index: Store, *, keep: int) -> int:
    """Delete all but the newest ``keep`` records, and the newest good one; return how many were deleted."""
    found = _records(index)
    last_good = next((record for record in reversed(found) if record[2] in GOOD), None)
    old = [record[0] for record in found[:-keep] if record is not last_good]
    for name in old:
        index.delete(name)
    return len(old)


def _records(index: Store) -> list[re.Match[str]]:
    """Return the names of the records, oldest first, with end and outcome as groups."""
    return [match for name in sorted(index.names("nights")) if (match := _NAME.fullmatch(name))]


def _read(index: Store, name: str) -> Night:
    data = index.get(name) or b""
    with parsing(f"{index.uri}/{name} is damaged", "delete it"):
        value = json.loads(data)
        if value.pop("format") != _FORMAT:
            raise ArtifactError(f"{index.uri}/{name} has another format; read it with the release that wrote it")
        return Night(**{**value, "refused": tuple(value["refused"])})


class DeploymentMetrics:
    """Collector of prometheus_client: reads the index when it is asked, at most once in ``seconds``."""

    def __init__(self, index: Store, *, seconds: float) -> None:
        """Remember the index; nothing is read yet."""
        self._index, self._seconds = index, seconds
        self._read_at, self._metrics = float("-inf"), list["Metric"]()

    def collect(self) -> Iterator["Metric"]:
        """Yield the metrics; after a failure to read only ``lsr_prod_watch_up`` 0, so that no old value is shown."""
        if time.monotonic() - self._read_at >= self._seconds:
            self._read_at = time.monotonic()
            try:
                self._metrics = [*_publication(self._index), *_night(self._index)]
                up = 1
            except (LsrError, OSError) as error:
                log.warning("index not read", extra={"fields": {"index": self._index.uri, "error": str(error)}})
                self._metrics, up = [], 0
            self._metrics.append(_gauge("lsr_prod_watch_up", "1 if the index could be read.", up))
        yield from self._metrics


def _gauge(name: str, text: str, value: float) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def _one_of(name: str, text: str, label: str, values: Iterable[str], true: Collection[str]) -> "Metric":
    """Return a metric of 0 or 1 per value of a label."""
    from prometheus_client.core import GaugeMetricFamily

    metric = GaugeMetricFamily(name, text, labels=[label])
    for value in values:
        metric.add_metric([value], float(value in true))
    return metric


def _publication(index: Store) -> Iterator["Metric"]:
    found = publications.find_current_publication(index)
    if found is not None:
        published = datetime.fromisoformat(found.published_at).astimezone(UTC).timestamp()
        yield _gauge("lsr_prod_index_publication", "Number of the current publication.", found.number)
        yield _gauge("lsr_prod_index_published_timestamp_seconds", "Time of the current publication.", published)


def _night(index: Store) -> Iterator["Metric"]:
    last, good = last_nights(index)
    if good is not None:
        yield _gauge("lsr_prod_night_good_timestamp_seconds", "End of the last good night.", good.timestamp())
    if last is None:
        return
    started, finished = (datetime.fromisoformat(at).timestamp() for at in (last.started_at, last.finished_at))
    yield _gauge("lsr_prod_night_seconds", "Duration of the last night.", finished - started)
    outcomes = get_args(NightOutcome)
    yield _one_of("lsr_prod_night_outcome", "1 for the outcome of the last night.", "outcome", outcomes, [last.outcome])
    yield _one_of("lsr_prod_night_gate_refused", "1 if the gate refused the last night.", "gate", GATES, last.refused)
    if last.quarantined_share is not None:
        yield _gauge("lsr_prod_night_quarantined_share", "Share of the source in quarantine.", last.quarantined_share)
    if last.busy_share is not None:
        yield _gauge("lsr_prod_night_busy_share", "Share of the time in which encoders encoded.", last.busy_share)
