"""Accounts of a job that makes training rows: progress, share of bad rows, rows that were lost, and the manifest."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from lsr_prod.errors import IncompleteWaveError, QuarantineOverflowError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, store_digest
from lsr_prod.training_data.row_jobs.output import MANIFEST
from lsr_prod.training_data.row_jobs.parts import part_name

log = get_log(__name__)

_PROGRESS_S = 10.0
_FOOTERS = 32  # concurrent reads of footers and digests: each is bound by store latency


class Report(Protocol):
    """Counts of a finished slice."""

    @property
    def rows(self) -> int:
        """Rows of the slice."""

    @property
    def made(self) -> int:
        """Rows of the part."""

    @property
    def quarantined(self) -> Counter[str]:
        """Bad rows by reason."""

    def to_json(self) -> dict[str, Any]:
        """The counts that are stored in the footer of the part."""


R = TypeVar("R", bound=Report)


class Progress:
    """Logs the progress every few seconds."""

    def __init__(self, rows: int, *, unit: str) -> None:
        self._rows, self._unit = rows, unit
        self._began = self._logged = time.monotonic()
        self._done = self._made = self._work = 0

    def add(self, report: Report, work: int) -> None:
        """Add a finished slice; ``work`` is its number of units."""
        self._done, self._made = self._done + report.rows, self._made + report.made
        self._work += work
        now = time.monotonic()
        if now - self._logged >= _PROGRESS_S or self._done == self._rows:
            self._logged = now
            rate = round(self._work / max(now - self._began, 1e-9), 1)
            fields = {"rows": self._done, "of": self._rows, "made": self._made, f"{self._unit}_per_s": rate}
            log.info("progress", extra={"fields": fields})


def finished_reports(store: Store, slices: int, read: Callable[[Store, int], R]) -> dict[int, R]:
    """Read the reports of the slices that have a part."""
    existing = set(store.names())
    finished = [number for number in range(slices) if part_name(number) in existing]
    with ThreadPoolExecutor(_FOOTERS) as pool:
        return dict(zip(finished, pool.map(partial(read, store), finished), strict=True))


def check_bad_rows(rows: int, bad: Counter[str], *, limit: float, section: str) -> None:
    """Compare the bad rows with the limit of the settings."""
    if bad.total() > limit * rows:
        reasons = ", ".join(f"{reason} {number}" for reason, number in bad.most_common())
        raise QuarantineOverflowError(
            f"{bad.total()} of {rows} rows are bad ({reasons}), more than {section}.data.max_bad_fraction allows; "
            f"fix the data or {section}.data.columns, or raise the limit"
        )


def check_lost_rows(store: Store, expected: Sequence[int], reports: Mapping[int, Report]) -> None:
    """Compare the rows of every part and its quarantine with the rows that its slice has."""
    for number, rows in enumerate(expected):
        report = reports.get(number)
        if report is None or report.rows != rows or rows != report.made + report.quarantined.total():
            found = "no report" if report is None else report.to_json()
            raise IncompleteWaveError(
                f"slice {number} has {rows} rows, but its part reports {found}; delete "
                f"{store.uri}/{part_name(number)}, then run the job again"
            )


def seal(store: Store, manifest: Mapping[str, Any], rows: Sequence[int]) -> None:
    """Write the manifest, which completes the output."""
    names = [part_name(number) for number in range(len(rows))]
    with ThreadPoolExecutor(_FOOTERS) as pool:
        digests = list(pool.map(partial(store_digest, store), names))
    files = [
        {"path": name, "sha256": digest, "rows": count}
        for name, digest, count in zip(names, digests, rows, strict=True)
    ]
    store.put_new(MANIFEST, canonical_json({**manifest, "files": files}))
