"""Requests and responses as JSON."""

import dataclasses
import datetime as dt
import json
from types import MappingProxyType
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError, ConfigError, LsrError, QueryError
from lsr_prod.search import Hit, QueryTerm, SearchResult
from lsr_prod.search.query.filters import field
from lsr_prod.search.query.search_request import Options, Request
from lsr_prod.search.search_result import Facet
from lsr_prod.serving.groups import UnavailableError
from lsr_prod.serving.wire import (
    OPTION_FORMS,
    WireRequest,
    error_from_json,
    error_to_json,
    request_to_json,
    result_from_json,
    result_to_json,
)

floats = st.floats(0, 2**99, width=32)
times = st.datetimes(timezones=st.just(dt.UTC))
fields = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(),
        "year": st.none() | st.integers(),
        "grade": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    },
    optional={"published": st.none() | times},
)
places = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3).map(tuple)
highlights = st.none() | st.dictionaries(st.text(), places, max_size=2).map(MappingProxyType)
hits = st.builds(Hit, st.text(), floats, st.integers(0, 9), fields, highlights)
counts = st.integers(1, 10**9)
facets = st.builds(
    Facet,
    st.text(),
    # The values of a facet have one type.
    st.one_of(
        *(
            st.lists(st.tuples(values, counts), max_size=3).map(tuple)
            for values in (st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), times)
        )
    ),
    counts,
    counts,
)
results = st.builds(
    SearchResult,
    hits=st.lists(hits, max_size=4).map(tuple),
    matched=st.integers(0, 10**9),
    matched_exact=st.booleans(),
    required=st.integers(1, 9),
    query=st.lists(st.builds(QueryTerm, st.text(), floats), max_size=4).map(tuple),
    version=st.text(),
    partial=st.booleans(),
    encode_ms=floats,
    match_ms=floats,
    fetch_ms=floats,
    missing_groups=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    offset=st.integers(0, 9),
    full=st.booleans(),
    facets=st.lists(facets, max_size=2).map(tuple),
)


def over_the_wire(value):
    return json.loads(json.dumps(value, allow_nan=False))


@settings(deadline=None, max_examples=40)
@given(results)
def test_a_result_survives_the_round_trip(result):
    assert result_from_json(over_the_wire(result_to_json(result))) == result


def test_a_request_survives_the_round_trip():
    expression = (field("year") >= 2000) & field("published").is_in([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)])
    options = {"filter": expression, "fields": ("text",), "min_terms": np.int64(2), "deadline_ms": 5.0, "qk": None}
    options["scan_share"] = np.float32(0.5)
    sent = request_to_json(np.int32(7), options, vector={"lock": np.float32(0.5), np.int64(3): 1})
    request = WireRequest.read(over_the_wire(sent))
    assert request.queries is None
    assert request.vector == {"lock": 0.5, 3: 1}
    assert request.k == 7
    assert request.options["fields"] == ["text"]
    assert (request.options["min_terms"], request.options["scan_share"]) == (2, 0.5)
    filtered = request.options["filter"]
    assert filtered is not None
    assert filtered.key == expression.key
    assert WireRequest.read(over_the_wire(request_to_json(3, {}, texts=["a", "b"]))).queries == ["a", "b"]
    assert WireRequest.read({"text": "a"}).k == 10


def test_options_of_a_request_have_one_type_and_a_form():
    kinds = {each.name: each.type for each in dataclasses.fields(Request) if each.init and each.name != "k"}
    assert kinds == get_type_hints(Options)
    assert kinds.keys() == OPTION_FORMS.keys()


def test_an_id_and_an_equal_term_stay_two_entries():
    request = WireRequest.read(over_the_wire(request_to_json(1, {}, vector={"5": 1.0, 5: 2.0})))
    assert request.vector == {"5": 1.0, 5: 2.0}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "give an object"),
        ([], "give an object"),
        ({}, "exactly one of"),
        ({"text": "a", "vector": {}}, "exactly one of"),
        ({"text": "a", "tex": 1}, "'tex'"),
        ({"texts": "abc"}, "give a list"),
        ({"vector": "abc"}, "give a list"),
        ({"vector": [["a", 1, 2]]}, "no pair"),
        ({"vector": [[["a"], 1]]}, "no pair"),
        ({"vector": [["a", 1], ["a", 2]]}, "given twice"),
        ({"text": "a", "filter": 7}, "filter is 7"),
        ({"text": "a", "fields": "title"}, "give a list"),
        ({"text": "a", "count": "yes"}, "true or false"),
        ({"text": "a", "deduplicate": ["title"]}, "give a string"),
    ],
)
def test_a_malformed_request_is_refused_with_the_remedy(value, words):
    with pytest.raises(QueryError, match=words):
        WireRequest.read(value)


def test_a_client_refuses_values_without_a_json_form():
    with pytest.raises(QueryError, match="no vector"):
        request_to_json(1, {}, vector=[("a", 1.0)])
    with pytest.raises(QueryError, match="the filter"):
        request_to_json(1, {"filter": {"field": "a"}}, vector={})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("kind", [QueryError, ArtifactError, UnavailableError])
def test_an_error_survives_the_round_trip(kind):
    error = error_from_json(over_the_wire(error_to_json(kind("what; remedy"))))
    assert (type(error), str(error)) == (kind, "what; remedy")


def test_an_error_unknown_to_the_client_keeps_its_name():
    error = error_from_json(over_the_wire(error_to_json(ConfigError("a.b", "is odd", "make it even"))))
    assert type(error) is LsrError
    assert str(error) == "ConfigError: a.b: is odd; make it even"
