"""Validation of search options on creation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import field
from lsr_prod.search.query.search_request import Hybrid, Request, make_request


def test_default_k_is_ten():
    request = Request()
    assert (request.k, request.min_terms, request.fields, request.count) == (10, 1, (), False)
    assert request.required(7) == 1


def test_numpy_numbers_become_python_numbers():
    request = Request(
        k=np.uint8(200),
        qk=np.int8(3),
        min_terms=np.int64(2),
        min_score=np.float32(0.5),
        rescore=np.uint16(300),
        deadline_ms=np.int32(5),
        count=np.bool_(True),
    )
    values = (request.k, request.qk, request.min_terms, request.min_score, request.rescore, request.deadline_ms)
    assert values == (200, 3, 2, 0.5, 300, 5.0)
    assert {type(value) for value in values} == {int, float}
    assert request.count is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", -1),
        ("k", 10_001),
        pytest.param("k", 10**5000, id="a huge k"),
        ("k", 3.0),
        ("k", True),
        ("overlap_threshold", 1.1),
        ("overlap_threshold", -1),
        ("overlap_threshold", math.nan),
        ("overlap_threshold", 10**400),
        ("min_terms", 0),
        ("min_terms", "2"),
        ("qk", 0),
        pytest.param("qk", -(10**5000), id="a huge qk"),
        ("query_mass", 0),
        ("query_mass", 1.1),
        ("query_mass", math.nan),
        ("query_mass", None),
        ("min_score", -0.1),
        ("min_score", math.inf),
        ("min_score", math.nan),
        ("min_score", 10**400),
        ("min_score", "1"),
        ("scan_share", 0),
        ("scan_share", 0.0),
        ("scan_share", -0.1),
        ("scan_share", 1.1),
        ("scan_share", math.nan),
        ("scan_share", 10**400),
        ("scan_share", True),
        ("scan_share", "1"),
        ("scan_share", None),
        ("rescore", 9),
        ("rescore", 10_001),
        ("rescore", True),
        ("deduplicate", 3),
        ("deduplicate", ["year"]),
        ("deadline_ms", -1),
        ("deadline_ms", math.nan),
        ("deadline_ms", 1e10),
        ("deadline_ms", True),
        ("count", 1),
        ("count", "yes"),
        ("count", None),
        ("fields", "text"),
        ("fields", 3),
        ("fields", None),
        ("fields", [3]),
        ("fields", {"text"}),
        ("fields", (name for name in ["text"])),
        ("hybrid", "sum"),
    ],
)
def test_value_out_of_range_is_rejected_by_name(name, value):
    with pytest.raises(QueryError, match=name) as caught:
        Request(**{name: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("options", "size", "required"),
    [
        ({"overlap_threshold": 0.28}, 25, 7),
        pytest.param({"overlap_threshold": Fraction(1, 10**5000)}, 25, 1, id="a tiny share"),
        ({"overlap_threshold": 1}, 25, 25),
        ({"overlap_threshold": 0.4, "min_terms": 3}, 5, 3),
        ({"min_terms": 10**30}, 5, 10**30),
    ],
)
def test_required_terms_follow_threshold_and_min_terms(options, size, required):
    assert Request(**options).required(size) == required


def test_k_of_zero_and_of_maximum_are_accepted():
    assert Request(k=0, rescore=0, deadline_ms=0, filter=field("year") == 1).k == 0
    assert Request(k=10_000, rescore=10_000).rescore == 10_000


@pytest.mark.parametrize(
    "options",
    [{"fusion": "max"}, {"fusion": []}, {"terms": 0}, {"words": math.nan}, {"constant": -1}, {"depth": 0.5}],
)
def test_invalid_hybrid_settings_are_rejected(options):
    with pytest.raises(QueryError, match=rf"hybrid\.{next(iter(options))}"):
        Hybrid(**options)


def test_equal_options_of_other_types_are_validated_anew() -> None:
    assert make_request(3, {"min_terms": 1}) is make_request(3, {"min_terms": 1})
    assert make_request(3, {"min_terms": 1}) == Request(k=3, min_terms=1)
    for k, options in ((3, {"min_terms": True}), (3, {"min_terms": 1.0}), (True, {}), (3, {"fields": "text"})):
        with pytest.raises(QueryError):
            make_request(k, options)
