"""The router, in this process, over shard groups in this process."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError
from ray.serve._private import replica

from lsr_prod.search import Searcher
from lsr_prod.search.query.request import Options
from lsr_prod.serving.router import Router
from lsr_prod.serving.wire import result_from_json
from tests.indexing.corpus import Doc, make_index
from tests.search.test_parallel_searcher import CORPUS, V
from tests.serving.local import LocalReplicas


@pytest.fixture
def index(tmp_path, unpatched_ray):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3)
    return tmp_path


def router(index, *, poll_seconds=60.0, before=lambda *_: None):
    groups = [LocalReplicas(index, group, 2, before) for group in range(2)]
    return Router(
        *groups,
        index=str(index),
        concurrency=4,
        encoder_threads=1,
        poll_seconds=poll_seconds,
        attempts=2,
        timeout_s=10,
    )


def post(one, body, path="/search", method="POST"):
    async def run():
        async def read():
            return body

        response = await one(SimpleNamespace(method=method, url=SimpleNamespace(path=path), body=read))
        return response.status_code, json.loads(response.body)

    return asyncio.run(run())


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


WORDS = ["t0", "t1", "text", "title", "d1", "doc_id", "eq", "in", "and", "field", "op", "value", "\ud800", ""]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(WORDS), some, max_size=3),
    max_leaves=8,
)
NAMES = ["text", "texts", "vector", "k", *Options.__annotations__, "other"]
VECTORS = st.dictionaries(st.sampled_from(WORDS), st.floats(0, 9), max_size=3)


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


def test_http_status_codes(index):
    one = router(index)
    status, value = post(one, b'{"vector": {"t0": 1.0}, "k": 1}')
    assert (status, len(value["hits"])) == (200, 1)
    assert post(one, b'{"vector": {"t0": 1.0}, "k": -1}')[0] == 400
    assert post(one, b"nothing")[0] == 400
    assert post(one, b"[1]")[0] == 400
    assert post(one, b" " * (9 << 20))[1]["message"].startswith("the request has")
    assert post(one, b"{}", path="/")[0] == 404
    assert post(one, b"{}", method="GET")[0] == 404

    def dead(*_):
        raise ActorDiedError

    status, value = post(router(index, before=dead), b'{"vector": {"t0": 1.0}}')
    assert (status, value["error"]) == (503, "UnavailableError")


def test_a_router_opens_new_publications(index):
    one = router(index, poll_seconds=0.05)
    before = asyncio.run(one.state())
    make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V)

    async def changed():
        for _ in range(200):
            state = await one.state()
            if state["publication"] == 2:
                return state
            await asyncio.sleep(0.05)
        raise TimeoutError

    after = asyncio.run(changed())
    assert (before["documents"], after["documents"], after["problem"]) == (len(CORPUS), 1, None)
    answer = asyncio.run(one.answer({"vector": {"t0": 1.0}}))
    assert [hit["doc_id"] for hit in answer["results"][0]["hits"]] == ["new"]
    assert answer["results"][0]["version"] == after["version"]
