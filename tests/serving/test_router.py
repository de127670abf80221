"""The router, in this process, over shard groups in this process."""

import asyncio
import json
import threading
import time
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError
from ray.serve._private import replica
from starlette.requests import Request

from lsr_prod.config import ServeSettings
from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.query.search_request import Options
from lsr_prod.serving.client import explanation_from_json
from lsr_prod.serving.router import QueuedRequest, Router
from lsr_prod.serving.wire import result_from_json
from tests.indexing.corpus import Doc, make_index
from tests.search.test_parallel_searcher import CORPUS, V
from tests.serving.local import LocalReplicas


@pytest.fixture
def index(tmp_path, unpatched_ray):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3)
    return tmp_path


def router(index, *, poll_seconds=60.0, before=lambda *_: None, timeout_s=10, follows=None, **settings):
    groups = [LocalReplicas(index, group, 2, before) for group in range(2)]
    groups[1].follows = follows or groups[1].follows
    rest = {"poll_seconds": poll_seconds, "attempts": 2, "timeout_s": timeout_s, "concurrency": 4, **settings}
    return Router(*groups, settings=ServeSettings.model_construct(index=str(index), **rest))


async def send(one, body=b"", path="/search", method="POST", headers=()):
    """Send a request in chunks, as an HTTP server would pass it on; return status, value, headers and bytes read."""
    chunks, received = iter([body[i : i + 65_536] for i in range(0, len(body), 65_536)] or [b""]), [0]

    async def receive():
        chunk = next(chunks, None)
        if chunk is None:  # the client sends nothing more, and waits
            await asyncio.sleep(60)
        received[0] += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": received[0] < len(body) or body == b"slow"}

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": list(headers)}
    response = await one(Request({**scope, "server": ("127.0.0.1", 80), "scheme": "http"}, receive))
    return response.status_code, json.loads(response.body), response.headers, received[0]


def post(one, body, path="/search", method="POST"):
    return asyncio.run(send(one, body, path, method))[:2]


def test_responses_are_json_values(index):
    answer = asyncio.run(router(index).answer({"vector": {"t0": 1.0}, "k": 3, "fields": ["text"]}))
    expected = Searcher.open(index).search_vector({"t0": 1.0}, 3, fields=["text"])
    found = result_from_json(json.loads(json.dumps(answer))["results"][0])
    assert (found.hits, found.version, found.query) == (expected.hits, expected.version, expected.query)


def test_a_router_handles_concurrent_requests(index):
    one, embedded = router(index), Searcher.open(index)

    async def run():
        return await asyncio.gather(*(one.answer({"vector": {f"t{i % V}": 1.0}, "k": 1 + i % 7}) for i in range(60)))

    for i, answer in enumerate(asyncio.run(run())):
        expected = embedded.search_vector({f"t{i % V}": 1.0}, 1 + i % 7).hits
        assert result_from_json(answer["results"][0]).hits == expected


WORDS = [
    "t0",
    "t1",
    "text",
    "words",
    "match",
    "all",
    "title",
    "d1",
    "doc_id",
    "eq",
    "in",
    "and",
    "field",
    "op",
    "value",
    "\ud800",
    "",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(WORDS), some, max_size=3),
    max_leaves=8,
)
NAMES = ["text", "texts", "vector", "k", *Options.__annotations__, "other"]
VECTORS = st.dictionaries(st.sampled_from(WORDS), st.floats(0, 9), max_size=3)


@pytest.mark.long
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.just({}) | VECTORS.map(lambda v: {"vector": v}),
    rest=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3),
)
@example(asked={"vector": {"t0": 1.0}}, rest={"k": True})
@example(asked={"vector": {"t0": 1.0}}, rest={"vector": {"\ud800": 1.0}})
def test_any_json_value_gets_a_result_or_an_error(fuzzed, asked, rest):
    # This index has no encoder: of texts, only those that are none.
    rest = {n: value for n, value in rest.items() if n not in ("text", "texts") or not isinstance(value, str | list)}
    answer = asyncio.run(fuzzed.answer({**asked, **rest}))
    assert ("results" in answer) != (answer.get("error") == "QueryError"), answer
    status, _ = post(fuzzed, json.dumps({**asked, **rest}).encode())
    assert status in (200, 400)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    make_index(folder, CORPUS, vocabulary_size=V, shards=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "add_port_to_grpc_server", replica.add_port_to_grpc_server)
        return router(folder)


@pytest.mark.parametrize("bm25", [False, True])
def test_typed_words_filter_over_http(tmp_path, unpatched_ray, bm25):
    corpus = {"ja": Doc({0: 1}, "東京都に住む"), "en": Doc({0: 2}, "don't panic, use USB-C")}
    make_index(tmp_path, corpus, vocabulary_size=V, shards=2, bm25=bm25, analyzer="bigrams")
    one = router(tmp_path)
    for words, match, expected in (
        ("京都", "all", ["ja"]),
        ('usb-c "" don\'t >>>', "all", ["en"]),
        ("東京 panic", "any", ["en", "ja"]),
        ("東京 panic", "all", []),
        ("((", "any", []),
    ):
        body = {"vector": {"t0": 1.0}, "filter": {"words": words, "match": match}}
        status, value = post(one, json.dumps(body).encode())
        assert (status, [hit["doc_id"] for hit in value.get("hits", [])]) == (200, expected)
    status, value = post(one, b'{"vector": {"t0": 1.0}, "filter": {"words": "a", "match": "most"}}')
    assert (status, value["message"]) == (400, "filter: match='most' is not possible; give 'all' or 'any'")


def test_http_status_codes(index):
    one = router(index)
    status, value = post(one, b'{"vector": {"t0": 1.0}, "k": 1}')
    assert (status, len(value["hits"])) == (200, 1)
    assert post(one, b'{"vector": {"t0": 1.0}, "k": -1}')[0] == 400
    assert post(one, b"nothing")[0] == 400
    assert post(one, b"[1]")[0] == 400
    assert post(one, b"{}", path="/")[0] == 404
    assert post(one, b"{}", method="GET")[0] == 404

    def dead(*_):
        raise ActorDiedError

    status, value = post(router(index, before=dead), b'{"vector": {"t0": 1.0}}')
    assert (status, value["error"]) == (503, "UnavailableError")


def test_a_body_is_refused_while_it_is_read(index):
    one, body = router(index, max_body_bytes=100_000, timeout_s=0.3), b" " * (9 << 20)
    status, value, _, received = asyncio.run(send(one, body))
    assert (status, value["error"], received) == (413, "BodyTooLargeError", 131_072)
    declared = [(b"content-length", str(len(body)).encode())]
    status, value, _, received = asyncio.run(send(one, body, headers=declared))
    assert (status, received) == (413, 0)
    assert value["message"] == f"the request has {len(body)} bytes; send at most 100000 (serve.max_body_bytes)"
    assert asyncio.run(send(one, b"slow"))[0] == 408
    assert one._admission.admitted == 0


def test_a_full_queue_is_answered_with_503_and_retry_after(index):
    opened = threading.Event()
    one = router(index, concurrency=1, queue=2, before=lambda *_: asyncio.to_thread(opened.wait, 10))

    async def run():
        asked = [asyncio.create_task(send(one, b'{"vector": {"t0": 1.0}, "k": 1}')) for _ in range(15)]
        while sum(task.done() for task in asked) < 12:
            await asyncio.sleep(0.01)
        health = await send(one, method="GET", path="/health")
        handle = await one.answer({"vector": {"t0": 1.0}})
        opened.set()
        answers = await asyncio.gather(*asked)
        return answers, health, handle, await send(one, b'{"vector": {"t0": 1.0}, "k": 1}')

    answers, health, handle, later = asyncio.run(run())
    assert sorted(answer[0] for answer in answers) == [200] * 3 + [503] * 12
    for status, value, headers, _ in answers:
        assert (status == 503) == ("retry-after" in headers) == (value.get("error") == "OverloadedError")
    assert health[1]["requests"] == 3
    assert handle["error"] == "OverloadedError"
    assert later[0] == 200


def ask(one, body, *, headers=(), method="POST", path="/search"):
    """Send a request as HAProxy does; return status, headers, value and the number of messages read."""
    sent, received = [], [0]

    async def receive():
        received[0] += 1
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    asyncio.run(one.asgi(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"]), received[0]


def alone(index, **settings):
    """A router that searches all shards itself."""
    rest = {"threads": 2, "poll_seconds": 60.0, "attempts": 2, "timeout_s": 10, **settings}
    return Router(settings=ServeSettings.model_construct(index=str(index), **rest))


def test_a_router_without_groups_searches_itself(index):
    one, embedded = alone(index), Searcher.open(index)
    asked = {"vector": {"t0": 1.0, "t3": 2.0}, "k": 5, "fields": ["text"]}
    status, headers, value, _ = ask(one, json.dumps(asked).encode())
    expected = embedded.search_vector(asked["vector"], 5, fields=["text"])
    assert (status, result_from_json(value).hits, value["version"]) == (200, expected.hits, expected.version)
    assert headers[b"content-type"] == b"application/json"
    assert ask(one, b"", method="GET", path="/health")[2]["status"] == "ok"
    missing = {"vector": {"t0": 1.0}, "fields": ["absent"]}
    assert ask(one, json.dumps(missing).encode())[0] == 400
    assert ask(one, b"\xff{}")[2]["message"].startswith("the request is not JSON")
    assert ask(one, b'{"vector": {"\\ud800": 1}}')[0] == 400


def test_a_router_without_groups_opens_new_publications(index):
    one = alone(index, poll_seconds=0.05)
    make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V, shards=3)
    end = time.monotonic() + 20
    while [hit["doc_id"] for hit in ask(one, b'{"vector": {"t0": 1.0}}')[2]["hits"]] != ["new"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_request_is_refused_before_its_body_is_read(index):
    one = alone(index, queue=0)
    with ExitStack() as stack:
        while one._admission.refusal() is None:
            stack.enter_context(one._admission.admit())
        status, headers, value, received = ask(one, b'{"vector": {"t0": 1.0}}')
    assert (status, headers[b"retry-after"], value["error"], received) == (503, b"1", "OverloadedError", 0)
    assert ask(one, b'{"vector": {"t0": 1.0}}')[0] == 200


def test_a_client_that_leaves_gets_no_response(index):
    one, sent = alone(index), []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(one.asgi({"type": "http", "method": "POST", "path": "/search", "headers": []}, receive, send))
    assert (sent, one._admission.admitted) == ([], 0)


def test_a_router_whose_search_hangs_is_unhealthy(index, monkeypatch):
    one = alone(index, timeout_s=0.01)
    one.check_health()
    began, opened = threading.Event(), threading.Event()

    def hang(*_, **__):
        began.set()
        opened.wait(10)
        raise QueryError("too late")

    monkeypatch.setattr(one._searcher, "search_vector", hang)
    asked = QueuedRequest("search", {"vector": {"t0": 1.0}}, time.monotonic())
    thread = threading.Thread(target=lambda: one._answer_one(asked))
    thread.start()
    assert began.wait(10)
    time.sleep(0.2)
    with pytest.raises(RuntimeError, match="a call has been running"):
        one.check_health()
    opened.set()
    thread.join()


def test_time_in_the_queue_counts_for_the_deadline_and_the_timeout(index):
    one, arrived, asked = router(index), time.monotonic() - 5, {"vector": {"t0": 1.0}}
    assert one._answer(QueuedRequest("search", asked, arrived))["results"][0]["hits"]
    late = one._answer(QueuedRequest("search", {**asked, "deadline_ms": 5_000}, arrived))["results"][0]
    assert (late["partial"], late["hits"]) == (True, [])
    assert one._answer(QueuedRequest("search", asked, arrived - 5))["error"] == "OverloadedError"


def test_a_request_with_an_impossible_number_fails_alone(index):
    one = alone(index)

    async def ask_all():
        deadlines = [None, 10**400, 1.0e308, True]
        return await asyncio.gather(*(one.answer({"vector": {"t0": 1.0}, "deadline_ms": each}) for each in deadlines))

    good, *bad = asyncio.run(ask_all())
    assert good["results"][0]["hits"]
    assert [each["error"] for each in bad] == ["QueryError"] * 3


def test_health_names_groups_that_do_not_answer(index):
    def absent(*_):
        raise ActorDiedError

    one = router(index)
    status, value = post(one, b"", "/health", "GET")
    assert (status, value["status"], value["missing_groups"], value["publication"]) == (200, "ok", [], 1)
    one._groups.handles[1].before = absent
    status, value = post(one, b"", "/health", "GET")
    assert (status, value["status"], value["missing_groups"]) == (200, "degraded", [1])
    one._groups.partial = False
    assert post(one, b"", "/health", "GET")[0] == 503
    one._groups.partial = True
    one._groups.handles[0].before = absent
    assert post(one, b"", "/health", "GET")[1]["status"] == "unavailable"


def test_a_router_without_its_follower_is_unhealthy(index):
    one = router(index)
    one.check_health()
    one._follower.stop()
    with pytest.raises(RuntimeError, match="follows publications"):
        one.check_health()


def test_a_partial_result_names_the_missing_groups_over_http(index):
    def dead(*_):
        raise ActorDiedError

    one = router(index)
    one._groups.handles[1].before = dead
    status, value = post(one, b'{"vector": {"t0": 1.0}}')
    assert (status, value["partial"], value["missing_groups"]) == (200, True, [1])
    assert result_from_json(value).missing_groups == (1,)


def test_a_group_that_misses_the_deadline_is_answered_with_503(index):
    one = router(index, missing_groups="error", before=lambda *_: asyncio.sleep(5))
    status, value = post(one, b'{"vector": {"t0": 1.0}, "deadline_ms": 50}')
    assert (status, value["error"]) == (503, "UnavailableError")
    assert "before the deadline" in value["message"]


def test_a_request_is_bounded_in_texts_and_hits(index):
    one = router(index)
    status, value = post(one, json.dumps({"texts": ["a"] * 1001}).encode())
    assert (status, value["message"]) == (400, "the request has 1001 texts; send at most 1000 at a time")
    status, value = post(one, json.dumps({"texts": ["a"] * 101, "k": 1000}).encode())
    assert (status, "more than 100000 hits" in value["message"]) == (400, True)


def test_operations_over_http(tmp_path, unpatched_ray):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3, bm25=True)
    one, embedded = router(tmp_path), Searcher.open(tmp_path)
    status, value = post(one, b'{"text": "text 3", "k": 4}', "/bm25")
    assert (status, result_from_json(value).hits) == (200, embedded.bm25("text 3", 4).hits)
    asked = {"vector": {"t1": 1.0}, "doc_id": "d1"}
    status, value = post(one, json.dumps(asked).encode(), "/explain")
    assert (status, explanation_from_json(value["explanation"])) == (200, embedded.explain({"t1": 1.0}, "d1"))
    for path, body, words in [
        ("/bm25", {}, "the request has no text"),
        ("/bm25", {"text": "a", "qk": 3}, "'qk', which is unknown; give some of: text, k, count, fields"),
        ("/explain", {"text": "a"}, "the request has no doc_id"),
        ("/explain", {"doc_id": "d1"}, "give a text or a vector"),
        ("/explain", {"doc_id": "d1", "vector": {}, "text": "a"}, "both with hybrid"),
        ("/explain", {"doc_id": "d1", "text": 7}, "text=7 is not a string"),
        ("/encode", {"texts": "a"}, "texts is 'a'; give a list"),
        ("/encode", {"texts": ["a"] * 1001}, "send at most 1000"),
    ]:
        status, value = post(one, json.dumps(body).encode(), path)
        assert (status, value["error"]) == (400, "QueryError"), body
        assert words in value["message"]
    assert "unknown" in asyncio.run(one.answer({}, "delete"))["message"]


def test_a_router_opens_new_publications(index):
    one = router(index, poll_seconds=0.05)
    before = asyncio.run(one.state())
    make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V)
    after = until(one, lambda state: state["publication"] == 2)
    assert (before["documents"], after["documents"], after["problem"]) == (len(CORPUS), 1, None)
    answer = asyncio.run(one.answer({"vector": {"t0": 1.0}}))
    assert [hit["doc_id"] for hit in answer["results"][0]["hits"]] == ["new"]
    assert answer["results"][0]["version"] == after["version"]


def test_a_router_keeps_its_version_while_a_replica_cannot_open_the_next_one(index):
    full = "DiskFullError: /cache/objects cannot be written (No space left on device); free space"
    problems = [full]

    def follow(versions):
        if problems[-1] is None:
            versions.follow()
        return problems[-1]

    one = router(index, poll_seconds=0.05, follows=follow)
    before = asyncio.run(one.answer({"vector": {"t0": 1.0}}))
    make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V)
    state = until(one, lambda state: state["problem"] is not None)
    assert "shard group 1 has not opened version" in state["problem"]
    assert full in state["problem"]
    assert state["publication"] == 1
    problems.append("")  # it only has not looked yet
    state = until(one, lambda state: state["problem"] is None)
    assert state["publication"] == 1
    hits = [answer["results"][0]["hits"] for answer in (before, asyncio.run(one.answer({"vector": {"t0": 1.0}})))]
    assert hits[0] == hits[1]
    problems.append(None)
    until(one, lambda state: state["publication"] == 2)
    answer = asyncio.run(one.answer({"vector": {"t0": 1.0}}))
    assert [hit["doc_id"] for hit in answer["results"][0]["hits"]] == ["new"]


def until(one, reached):
    async def poll():
        for _ in range(400):
            if reached(state := await one.state()):
                return state
            await asyncio.sleep(0.05)
        raise TimeoutError(state)

    return asyncio.run(poll())
