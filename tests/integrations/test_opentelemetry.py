"""Spans and metrics of searches arrive at exporters in memory, without the text of queries."""

import json

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import db_attributes, error_attributes
from opentelemetry.semconv.metrics import db_metrics

from lsr_prod.errors import QueryError
from lsr_prod.integrations.opentelemetry import OpenTelemetryObserver
from lsr_prod.search import Searcher
from tests.indexing.corpus import Doc, make_index


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracers(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def metrics():
    return InMemoryMetricReader()


@pytest.fixture
def searcher(tmp_path, tracers, metrics):
    make_index(tmp_path, {"one": Doc({0: 3, 1: 2}, "text"), "two": Doc({1: 1}, "text")}, vocabulary_size=2)
    meters = MeterProvider([metrics])
    observer = OpenTelemetryObserver("docs", tracer_provider=tracers, meter_provider=meters)
    with Searcher.open(tmp_path, observer=observer) as opened:
        yield opened
    meters.shutdown()


def points(metrics):
    data = metrics.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    return {metric.name: metric.data.data_points for metric in data}


def test_span_of_a_search_is_a_child_of_the_current_span(searcher, exporter, tracers):
    with tracers.get_tracer("test").start_as_current_span("request") as request:
        searcher.search_vector({"t1": 2.0})
    span, outer = exporter.get_finished_spans()
    assert span.name == "search docs"
    assert span.parent.span_id == request.get_span_context().span_id
    assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time
    assert span.attributes[db_attributes.DB_SYSTEM_NAME] == "lsr_prod"
    assert span.attributes[db_attributes.DB_COLLECTION_NAME] == "docs"
    assert span.attributes[db_attributes.DB_OPERATION_NAME] == "search"
    assert span.attributes["db.response.returned_rows"] == 2
    assert span.attributes["lsr_prod.search.version"] == searcher.publication.version


def test_metrics_of_searches_have_seconds_hits_and_stages(searcher, metrics):
    searcher.search_vector({"t1": 2.0})
    searcher.search_vector({"t0": 1.0})
    found = points(metrics)
    assert found[db_metrics.DB_CLIENT_OPERATION_DURATION][0].count == 2
    assert found["db.client.response.returned_rows"][0].sum == 3
    stages = {point.attributes["stage"]: point.count for point in found["lsr_prod.search.stage.duration"]}
    assert stages == {"encode": 2, "match": 2, "fetch": 2}


def test_failed_search_has_its_kind_but_no_text(searcher, exporter, metrics):
    with pytest.raises(QueryError, match="secret"):
        searcher.search_vector({"t0": 1.0}, fields=["secret"])
    searcher.search_vector({"secret": 1.0})
    failed, answered = exporter.get_finished_spans()
    assert failed.attributes[error_attributes.ERROR_TYPE] == "QueryError"
    assert not failed.status.is_ok
    assert points(metrics)["lsr_prod.search.errors"][0].value == 1
    assert "secret" not in json.dumps([failed.to_json(), answered.to_json()])
