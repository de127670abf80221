"""docs/openapi.json is valid, up to date, and describes what the router reads and answers."""

import datetime as dt
import json

import jsonschema
import pytest
from openapi_spec_validator import validate

from infra.site.openapi import FILE, document, text
from lsr_prod import Index
from lsr_prod.config import ServeSettings
from lsr_prod.search.query.search_request import OPTIONS
from lsr_prod.serving.client import FORMS
from lsr_prod.serving.http import STATUS
from lsr_prod.serving.router import OPERATIONS, Router
from tests.serving.test_router import post

WORDS = {"hybrid": {"words": 2.0}}
REQUESTS = [
    ("search", {"text": "a lock"}, 200),
    ("search", {"text": "a lock", "k": 1, "fields": ["text", "day"], "highlight": ["text"], **WORDS}, 200),
    ("search", {"texts": ["lock", "date", ""], "facets": ["day", "year"], "sort": "-year"}, 200),
    ("search", {"vector": {"lock": 2.0, "unheard": 1}, "rescore": 10, "deadline_ms": 1e6}, 200),
    ("search", {"vector": [["lock", 2.0], [0, 1]], "text": "date", **WORDS}, 200),
    ("search", {"text": "a", "filter": {"and": [{"field": "year", "op": "between", "value": [2000, 2022]}]}}, 200),
    ("search", {"text": "a", "filter": {"not": {"or": [{"words": "lock", "match": "any"}, {"text": "x OR y"}]}}}, 200),
    ("search", {"text": "a", "filter": {"field": "day", "op": "is_null"}}, 200),
    ("bm25", {"text": "lock", "count": True, "fields": ["year"]}, 200),
    ("explain", {"text": "a lock", "doc_id": "lock", **WORDS}, 200),
    ("explain", {"vector": {"lock": 1.0}, "doc_id": "date", "qk": 1}, 200),
    ("encode", {"texts": ["a lock", ""]}, 200),
    ("search", {"text": "a", "filter": {"field": "size", "op": "eq", "value": 1}}, 400),
]
ODD = [
    ("search", {}),
    ("search", {"text": "a", "treshold": 1}),
    ("search", {"text": 3}),
    ("search", {"text": "a", "k": 10_001}),
    ("search", {"text": "a", "count": 1}),
    ("search", {"text": "a", "fields": "text"}),
    ("search", {"text": "a", "filter": {"field": "year", "op": "near", "value": 1}}),
    ("search", {"text": "a", "filter": {"and": []}}),
    ("search", {"text": "a", "hybrid": {"word": 1}}),
    ("search", {"vector": [["lock", 1, 2]]}),
    ("search", {"vector": {"lock": -1}}),
    ("bm25", {"k": 3}),
    ("bm25", {"text": "a", "qk": 3}),
    ("explain", {"doc_id": "lock"}),
    ("encode", {"text": "a"}),
]


@pytest.fixture
def router(unpatched_ray):
    fields = {"year": [2019, None], "day": [dt.date(2021, 8, 22), None]}
    with Index.from_texts({"lock": "hold a lock", "date": "parse a date"}, fields=fields, bm25=True) as index:
        place = str(index.snapshot.index)
        yield Router(settings=ServeSettings(index=place, poll_seconds=60, attempts=1))


def check(value, schema):
    jsonschema.Draft202012Validator({**schema, "components": document()["components"]}).validate(value)


def content(part):
    return part["content"]["application/json"]["schema"]


def test_file_is_what_the_generator_writes():
    assert FILE.read_text() == text(), "run python -m infra.site.openapi"


def test_description_is_valid_and_has_all_operations_and_statuses():
    validate(document())
    paths = document()["paths"]
    assert {*paths} == {"/health", *(f"/{name}" for name in OPERATIONS)}
    for name in OPERATIONS:
        assert {*content(paths[f"/{name}"]["post"]["requestBody"])["properties"]} == {*FORMS[name]}
        assert {"200", *map(str, STATUS.values())} <= {*paths[f"/{name}"]["post"]["responses"]}
    assert {*FORMS["search"]} > OPTIONS


def test_requests_and_answers_of_the_router_have_the_schemas(router):
    for name, body, status in REQUESTS:
        operation = document()["paths"][f"/{name}"]["post"]
        check(body, content(operation["requestBody"]))
        code, answer = post(router, json.dumps(body).encode(), f"/{name}")
        assert code == status, answer
        check(answer, content(operation["responses"][str(code)]))
    code, answer = post(router, b"", "/health", "GET")
    check(answer, content(document()["paths"]["/health"]["get"]["responses"][str(code)]))


def test_what_the_schema_refuses_the_router_refuses(router):
    for name, body in ODD:
        with pytest.raises(jsonschema.ValidationError):
            check(body, content(document()["paths"][f"/{name}"]["post"]["requestBody"]))
        assert post(router, json.dumps(body).encode(), f"/{name}")[0] == 400
