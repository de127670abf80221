"""Hybrid requests as JSON, in both directions."""

import json

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.serving.wire import WireRequest, request_to_json, result_from_json, result_to_json
from tests.indexing.corpus import Doc, make_index

HYBRID = Hybrid(fusion="rrf", terms=2.0, depth=50)


@pytest.mark.parametrize(
    ("asked", "words"),
    [({"text": "fox"}, None), ({"texts": ["fox", ""]}, None), ({"vector": {"t1": 1.0}, "text": "fox"}, "fox")],
)
def test_a_hybrid_request_survives_the_round_trip(asked, words):
    sent = json.loads(json.dumps(request_to_json(7, {"hybrid": HYBRID}, **asked)))
    request = WireRequest.read(sent)
    assert request.options["hybrid"] == HYBRID
    assert request.text == asked.get("text")
    assert request.queries == (asked.get("texts") or (["fox"] if words is None else None))
    assert WireRequest.read({**sent, "hybrid": {}}).options["hybrid"] == Hybrid()


@pytest.mark.parametrize("hybrid", [True, "sum", [], {"fusion": ["sum"]}, {"weight": 1}, {"terms": "1"}])
def test_a_malformed_hybrid_is_refused(hybrid):
    with pytest.raises(QueryError, match="hybrid"):
        WireRequest.read({"text": "fox", "hybrid": hybrid})
    with pytest.raises(QueryError, match="hybrid"):
        request_to_json(7, {"hybrid": hybrid}, text="fox")


def test_a_text_with_a_vector_is_refused_without_hybrid():
    with pytest.raises(QueryError, match="exactly one"):
        WireRequest.read({"text": "fox", "vector": {"t1": 1.0}})


def test_words_of_a_result_survive_the_round_trip(tmp_path):
    make_index(tmp_path, {"a": Doc({1: 3}, "a fox")}, vocabulary_size=3, bm25=True)
    result = Searcher.open(tmp_path).search_vector({1: 1.0}, text="fox", hybrid=Hybrid())
    assert result_from_json(json.loads(json.dumps(result_to_json(result)))) == result
