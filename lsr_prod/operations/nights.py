"""Records of the nights of an index: how each run of the job reindex ended. What watches a deployment reads them.

A record is a file ``nights/<finished>.<outcome>.json`` of the index, created if absent: its name alone says when the
last good night was. A run that is killed leaves no record, so the age of the last good one is what to watch.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from lsr_prod.errors import ArtifactError, LsrError, StorageError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.logs import get_log
from lsr_prod.storage import Store

log = get_log(__name__)

NightOutcome = Literal["published", "unchanged", "refused", "failed"]
GOOD: tuple[NightOutcome, ...] = ("published", "unchanged")
_FORMAT = 1
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(rf"nights/(\d{{8}}T\d{{12}}Z)\.({'|'.join(get_args(NightOutcome))})\.json")


@dataclass(frozen=True, slots=True)
class Night:
    """A finished run of the job reindex.

    Attributes:
        started_at: UTC, ISO 8601.
        finished_at: UTC, ISO 8601.
        outcome: ``published`` a version; ``unchanged``: nothing to publish; ``refused`` by a gate; ``failed``.
        refused: gates that refused the version.
        quarantined_share: quarantined rows of the source, of all its rows; None: it was not encoded.
        busy_share: share of the time of the encoders in which their models ran; None: nothing was encoded.
        error: class of the error that ended the run; "": none.
    """

    started_at: str
    finished_at: str
    outcome: NightOutcome
    refused: tuple[str, ...] = ()
    quarantined_share: float | None = None
    busy_share: float | None = None
    error: str = ""

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
    names = sorted(name for name in index.names("nights") if _NAME.fullmatch(name))
    if not names:
        return None, None
    good = [name for name in names if _match(name)[2] in GOOD]
    last_good = datetime.strptime(_match(good[-1])[1], _TIME).replace(tzinfo=UTC) if good else None
    return _read(index, names[-1]), last_good


def delete_old_nights(index: Store, *, keep: int) -> int:
    """Delete all but the newest ``keep`` records, and the newest good one; return how many were deleted."""
    names = sorted(name for name in index.names("nights") if _NAME.fullmatch(name))
    good = [name for name in names if _match(name)[2] in GOOD]
    old = [name for name in names[:-keep] if name != (good[-1] if good else None)]
    for name in old:
        index.delete(name)
    return len(old)


def _match(name: str) -> re.Match[str]:
    found = _NAME.fullmatch(name)
    assert found is not None
    return found


def _read(index: Store, name: str) -> Night:
    try:
        value = json.loads(index.get(name) or b"")
        if value.pop("format") != _FORMAT:
            raise ArtifactError(f"{index.uri}/{name} has another format; read it with the release that wrote it")
        return Night(**{**value, "refused": tuple(value["refused"])})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{index.uri}/{name} is damaged; delete it") from error
