"""Metrics of a deployment that outlive its jobs, read from the index: nights, gates, publication."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

from lsr_prod.errors import LsrError
from lsr_prod.logs import get_log
from lsr_prod.operations.gates import GATES
from lsr_prod.operations.nights import NightOutcome, last_nights
from lsr_prod.storage import Store
from lsr_prod.storage.publications import find_current_publication

if TYPE_CHECKING:
    from prometheus_client import Metric

log = get_log(__name__)


class DeploymentMetrics:
    """Collector of prometheus_client: reads the index when it is asked, at most once in ``seconds``."""

    def __init__(self, index: Store, *, seconds: float) -> None:
        """Remember the index; nothing is read yet."""
        self._index, self._seconds = index, seconds
        self._read_at, self._metrics = float("-inf"), list["Metric"]()

    def collect(self) -> Iterator["Metric"]:
        """Yield the metrics; after a failure to read only ``lsr_prod_watch_up`` 0, so that no old value is shown."""
        from prometheus_client.core import GaugeMetricFamily

        if time.monotonic() - self._read_at >= self._seconds:
            self._read_at = time.monotonic()
            try:
                self._metrics = [*_publication(self._index), *_night(self._index)]
                up = 1
            except (LsrError, OSError) as error:
                log.warning("index not read", extra={"fields": {"index": self._index.uri, "error": str(error)}})
                self._metrics, up = [], 0
            self._metrics.append(GaugeMetricFamily("lsr_prod_watch_up", "1 if the index could be read.", value=up))
        yield from self._metrics


def _publication(index: Store) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    found = find_current_publication(index)
    if found is not None:
        published = datetime.fromisoformat(found.published_at).astimezone(UTC).timestamp()
        yield GaugeMetricFamily("lsr_prod_index_publication", "Number of the current publication.", value=found.number)
        yield GaugeMetricFamily(
            "lsr_prod_index_published_timestamp_seconds", "Time of the current publication.", value=published
        )


def _night(index: Store) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    last, good = last_nights(index)
    if good is not None:
        yield GaugeMetricFamily(
            "lsr_prod_night_good_timestamp_seconds", "End of the last good night.", value=good.timestamp()
        )
    if last is None:
        return
    started, finished = (datetime.fromisoformat(at).timestamp() for at in (last.started_at, last.finished_at))
    yield GaugeMetricFamily("lsr_prod_night_seconds", "Duration of the last night.", value=finished - started)
    outcomes = GaugeMetricFamily("lsr_prod_night_outcome", "1 for the outcome of the last night.", labels=["outcome"])
    for name in get_args(NightOutcome):
        outcomes.add_metric([name], float(last.outcome == name))
    yield outcomes
    gates = GaugeMetricFamily("lsr_prod_night_gate_refused", "1 if the gate refused the last night.", labels=["gate"])
    for name in GATES:
        gates.add_metric([name], float(name in last.refused))
    yield gates
    if last.quarantined_share is not None:
        yield GaugeMetricFamily(
            "lsr_prod_night_quarantined_share", "Share of the source in quarantine.", value=last.quarantined_share
        )
    if last.busy_share is not None:
        yield GaugeMetricFamily(
            "lsr_prod_night_busy_share", "Share of the time in which encoders encoded.", value=last.busy_share
        )
