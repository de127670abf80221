"""Spans and metrics of searches for OpenTelemetry (``pip install 'lsr_prod[opentelemetry]'``).

Names are those of the semantic conventions of databases where they exist, else ``lsr_prod.search.*``. Neither texts nor
terms of queries are recorded, nor ids of documents.
"""

import time

from lsr_prod import __version__
from lsr_prod.extras import missing_extra
from lsr_prod.search import SearchResult, observers

try:
    from opentelemetry.metrics import MeterProvider, get_meter_provider
    from opentelemetry.trace import SpanKind, StatusCode, TracerProvider, get_tracer_provider
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise missing_extra(error) from error

__all__ = ["OpenTelemetryObserver"]

_COMMON: dict[str, AttributeValue] = {"db.system.name": "lsr_prod", "db.operation.name": "search"}


class OpenTelemetryObserver:
    """An observer that makes a span of each search, a child of the span that is current in its thread, and metrics.

    Spans ``search NAME`` have ``db.collection.name``, ``db.response.returned_rows``, and of ``lsr_prod.search``:
    ``matched``, ``terms`` (of the query), ``partial``, ``version`` and milliseconds by stage. Histograms:
    ``db.client.operation.duration`` (seconds), ``db.client.response.returned_rows``, and
    ``lsr_prod.search.stage.duration`` by ``stage``. A failed search has ``error.type``, and no duration.

    Examples:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> from lsr_prod import Searcher
        >>> from lsr_prod.integrations.opentelemetry import OpenTelemetryObserver
        >>> exporter, provider = InMemorySpanExporter(), TracerProvider()
        >>> provider.add_span_processor(SimpleSpanProcessor(exporter))
        >>> with Searcher.open("index", observer=OpenTelemetryObserver("docs", tracer_provider=provider)) as searcher:
        ...     _ = searcher.search("a lock")
        >>> [span.name for span in exporter.get_finished_spans()]
        ['search docs']
    """

    def __init__(
        self, name: str, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        """Create the instruments.

        Args:
            name: name of the index, for people who read traces.
            tracer_provider: provider of spans; None: that of the process.
            meter_provider: provider of metrics; None: that of the process.
        """
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer("lsr_prod", __version__)
        meter = (meter_provider or get_meter_provider()).get_meter("lsr_prod", __version__)
        buckets = {"explicit_bucket_boundaries_advisory": list(observers.BUCKETS)}
        self._seconds = meter.create_histogram("db.client.operation.duration", "s", "Duration of searches.", **buckets)
        self._stages = meter.create_histogram(
            "lsr_prod.search.stage.duration", "s", "Duration of searches by stage.", **buckets
        )
        self._hits = meter.create_histogram("db.client.response.returned_rows", "{row}", "Hits of searches.")
        self._errors = meter.create_counter("lsr_prod.search.errors", "{error}", "Failed searches.")
        self._attributes = {**_COMMON, "db.collection.name": name}
        self._span_name = f"search {name}"

    def answered(self, result: SearchResult) -> None:
        """See ``Observer``. The span ends now; its start follows from the times of the result."""
        seconds = observers.stages(result)
        details: dict[str, AttributeValue] = {
            **self._attributes,
            "db.response.returned_rows": len(result.hits),
            "lsr_prod.search.matched": result.matched,
            "lsr_prod.search.terms": len(result.query),
            "lsr_prod.search.partial": result.partial,
            "lsr_prod.search.version": result.version,
            **{f"lsr_prod.search.{stage}_ms": each * 1e3 for stage, each in seconds.items() if stage != "total"},
        }
        end = time.time_ns()
        start = end - int(seconds["total"] * 1e9)
        self._tracer.start_span(self._span_name, kind=SpanKind.INTERNAL, attributes=details, start_time=start).end(end)
        self._seconds.record(seconds.pop("total"), self._attributes)
        self._hits.record(len(result.hits), self._attributes)
        for stage, each in seconds.items():
            self._stages.record(each, {**self._attributes, "stage": stage})

    def failed(self, error: Exception) -> None:
        """See ``Observer``. The message is not recorded: it may repeat a part of the query."""
        kind: dict[str, AttributeValue] = {**self._attributes, "error.type": type(error).__name__}
        span = self._tracer.start_span(self._span_name, kind=SpanKind.INTERNAL, attributes=kind)
        span.set_status(StatusCode.ERROR)
        span.end()
        self._errors.add(1, kind)

    def opened(self, version: str, publication: int, documents: int) -> None:
        """See ``Observer``. Results name their version."""
