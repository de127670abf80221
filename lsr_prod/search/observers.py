"""Observers of a ``Searcher``, which calls them for every query and version.

::

    searcher = Searcher.open("index", observer=PrometheusObserver())
"""

from typing import TYPE_CHECKING, Protocol

from lsr_prod.errors import MissingExtraError
from lsr_prod.search.search_result import SearchResult

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_MATCHED_BUCKETS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


class Observer(Protocol):
    """Notified of every query, in its thread; an exception of the observer reaches the caller of the search.

    Examples:
        >>> from lsr_prod.search import Observer, Searcher
        >>> class PrintHits(Observer):
        ...     def answered(self, result):
        ...         print(len(result.hits))
        >>> with Searcher.open("index", observer=PrintHits()) as searcher:
        ...     _ = searcher.search("a lock")
        2
    """

    def answered(self, result: SearchResult) -> None:
        """A query returned a result."""

    def failed(self, error: Exception) -> None:
        """A query or a lookup raised an error."""

    def opened(self, version: str, publication: int, documents: int) -> None:
        """A version became current."""


def stages(result: SearchResult) -> dict[str, float]:
    """Return the seconds of a query by stage, and their ``total``."""
    seconds = {"encode": result.encode_ms / 1e3, "match": result.match_ms / 1e3, "fetch": result.fetch_ms / 1e3}
    return {**seconds, "total": sum(seconds.values())}


class PrometheusObserver:
    """Metrics ``lsr_prod_search_*`` for Prometheus.

    Counters: ``queries`` (by ``outcome``: full, partial, or the name of an error). Histograms: ``seconds`` (by
    ``stage``: encode, match, fetch, total), ``matched`` (matching documents read), ``hits``. Gauges: ``publication``,
    ``documents``, and ``version_info``, which is 1 for the current version and 0 for previous ones.

    Examples:
        >>> from prometheus_client import CollectorRegistry
        >>> from lsr_prod.search import PrometheusObserver, Searcher
        >>> registry = CollectorRegistry()  # without one: the default registry of the process
        >>> with Searcher.open("index", observer=PrometheusObserver(registry)) as searcher:
        ...     _ = searcher.search("a lock")
        >>> registry.get_sample_value("lsr_prod_search_queries_total", {"outcome": "full"})
        1.0
    """

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        """Register the metrics.

        Args:
            registry: registry of prometheus_client; None: the default one, which accepts one such observer.

        Raises:
            MissingExtraError: prometheus_client is not installed.
        """
        try:
            from prometheus_client import REGISTRY, Counter, Gauge, Histogram
        except ImportError as error:
            raise MissingExtraError("prometheus_client", "jobs") from error
        target = REGISTRY if registry is None else registry
        self._queries = Counter("lsr_prod_search_queries", "Queries by outcome.", ["outcome"], registry=target)
        self._seconds = Histogram(
            "lsr_prod_search_seconds", "Seconds of a query by stage.", ["stage"], registry=target, buckets=BUCKETS
        )
        self._matched = Histogram(
            "lsr_prod_search_matched", "Matching documents.", registry=target, buckets=_MATCHED_BUCKETS
        )
        self._hits = Histogram(
            "lsr_prod_search_hits", "Hits of a query.", registry=target, buckets=_MATCHED_BUCKETS[:6]
        )
        self._publication = Gauge("lsr_prod_search_publication", "Number of the current publication.", registry=target)
        self._documents = Gauge("lsr_prod_search_documents", "Documents that can be found.", registry=target)
        self._version = Gauge(
            "lsr_prod_search_version_info", "1 for the current version.", ["version"], registry=target
        )
        self._current: str | None = None

    def answered(self, result: SearchResult) -> None:
        """See ``Observer``."""
        self._queries.labels("partial" if result.partial else "full").inc()
        for stage, seconds in stages(result).items():
            self._seconds.labels(stage).observe(seconds)
        self._matched.observe(result.matched)
        self._hits.observe(len(result.hits))

    def failed(self, error: Exception) -> None:
        """See ``Observer``."""
        self._queries.labels(type(error).__name__).inc()

    def opened(self, version: str, publication: int, documents: int) -> None:
        """See ``Observer``."""
        if self._current is not None:
            self._version.labels(self._current).set(0)
        self._current = version
        self._version.labels(version).set(1)
        self._publication.set(publication)
        self._documents.set(documents)
