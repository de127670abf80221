"""The client: what it does when routers die, are slow, or refuse."""

import time
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError

from lsr_prod.errors import QueryError
from lsr_prod.search import SearchResult
from lsr_prod.serving import OverloadedError, ServedSearcher, UnavailableError
from lsr_prod.serving.wire import result_to_json

RESULT = SearchResult((), 3, True, 1, (), "v", False, 0.0, 0.0, 0.0)


class Handle:
    """Answers with one outcome after the other."""

    def __init__(self, *outcomes):
        self.outcomes, self.requests, self.operations = list(outcomes), [], []
        self.answer = SimpleNamespace(remote=self._remote)

    def _remote(self, request, operation):
        self.requests.append(request)
        self.operations.append(operation)
        outcome = self.outcomes.pop(0)

        def result(timeout_s):
            assert timeout_s >= 0
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return SimpleNamespace(result=result)


ANSWER = {"results": [result_to_json(RESULT)]}


def test_a_request_is_sent_again_after_a_router_died():
    handle = Handle(ActorDiedError(), ActorDiedError(), ANSWER)
    assert ServedSearcher(handle).search("a text", 3, min_terms=2) == RESULT
    assert handle.requests == [{"text": "a text", "k": 3, "min_terms": 2}] * 3


def test_a_client_fails_after_the_last_attempt():
    with pytest.raises(UnavailableError, match="2 routers were lost"):
        ServedSearcher(Handle(*[ActorDiedError()] * 3), attempts=2).search("a")


def test_a_client_times_out_without_a_response():
    with pytest.raises(UnavailableError, match="no router answered within 7 s"):
        ServedSearcher(Handle(TimeoutError()), timeout_s=7).search("a")


def test_errors_of_the_router_are_raised():
    refused = {"error": "QueryError", "message": "k=-1 is not possible"}
    with pytest.raises(QueryError, match=r"^k=-1 is not possible$"):
        ServedSearcher(Handle(refused)).search("a", -1)
    with pytest.raises(RayTaskError):
        ServedSearcher(Handle(RayTaskError("ask", "traceback", ZeroDivisionError()))).search("a")


def test_a_full_router_is_an_error_of_its_own():
    refused = {"error": "OverloadedError", "message": "80 requests run or wait"}
    for outcome in (refused, BackPressureError(num_queued_requests=9, max_queued_requests=9)):
        with pytest.raises(OverloadedError):
            ServedSearcher(Handle(outcome)).search("a")


def test_count_requests_an_exact_count():
    handle = Handle(ANSWER, ANSWER)
    client = ServedSearcher(handle)
    assert client.count("a") == client.count({"lock": 1.0}) == 3
    assert handle.requests == [
        {"text": "a", "k": 0, "count": True},
        {"vector": [["lock", 1.0]], "k": 0, "count": True},
    ]


def test_options_without_effect_are_refused_as_by_a_searcher():
    client = ServedSearcher(Handle())
    for call in (
        lambda: client.count("a", text="b"),
        lambda: client.count("a", min_score=1.0),
        lambda: client.explain("a", "1", text="b"),
    ):
        with pytest.raises(QueryError, match=r"text= belongs to a vector|count has no option 'min_score'"):
            call()


@pytest.mark.parametrize("texts", ["ab c", {"ab": 1}, 7])
def test_texts_that_are_no_list_are_refused_as_by_a_searcher(texts):
    client = ServedSearcher(Handle())
    for call in (client.search_batch, client.encode):
        with pytest.raises(QueryError, match=r"^texts=.* is not a list of strings; give a list$"):
            call(texts)


def test_a_batch_is_one_request():
    handle = Handle({"results": ANSWER["results"] * 2})
    start = time.monotonic()
    assert ServedSearcher(handle).search_batch(("a", "b")) == [RESULT, RESULT]
    assert handle.requests == [{"texts": ["a", "b"], "k": 10}]
    assert time.monotonic() - start < 5
