"""Metrics of a served index for the Prometheus endpoint of Ray: names and labels of ``PrometheusObserver``."""

from ray.util.metrics import Counter, Gauge, Histogram

from lsr_prod.search.metrics import BUCKETS, stages
from lsr_prod.search.result import SearchResult


class RayObserver:
    """Observer of the router's searcher."""

    def __init__(self) -> None:
        """Create the metrics; Ray adds ``ray_`` to their names."""
        self._queries = Counter("lsr_prod_search_queries", "queries by outcome", tag_keys=("outcome",))
        self._seconds = Histogram(
            "lsr_prod_search_seconds", "seconds of a query by stage", boundaries=list(BUCKETS), tag_keys=("stage",)
        )
        self._publication = Gauge("lsr_prod_search_publication", "number of the current publication")
        self._documents = Gauge("lsr_prod_search_documents", "documents that can be found")

    def answered(self, result: SearchResult) -> None:
        """See ``Observer``."""
        self._queries.inc(1, tags={"outcome": "partial" if result.partial else "full"})
        for stage, seconds in stages(result).items():
            self._seconds.observe(seconds, tags={"stage": stage})

    def failed(self, error: Exception) -> None:
        """See ``Observer``."""
        self._queries.inc(1, tags={"outcome": type(error).__name__})

    def opened(self, version: str, publication: int, documents: int) -> None:  # noqa: ARG002 (of the protocol)
        """See ``Observer``."""
        self._publication.set(publication)
        self._documents.set(documents)
