"""A served index under publications and a killed replica: every answer is the embedded one of the version it names."""

import asyncio
import json
import os
import random
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock

import pytest
from ray import serve

from lsr_prod.config import ServeSettings
from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher, SearchResult
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.filters import field as attribute
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.serving import ServedSearcher, UnavailableError, deployments, start
from lsr_prod.serving.wire import result_from_json
from lsr_prod.storage.formats.index_format import publication_name
from lsr_prod.storage.publications import create_publication, read_publication
from lsr_prod.storage.signatures import SIGNING_KEY, TRUSTED_KEYS
from tests.indexing.corpus import Doc, encode_corpus, make_index
from tests.listeners import kinds, listeners
from tests.storage.keys import KEYS, private, public

pytestmark = pytest.mark.long

APPLICATION = "served-test"
SHARDS, REPLICAS = 3, 2
TERMS = range(2000, 2040)
TEXTS = {"lock": "a lock is held by one thread", "json": "parse a string of json", "root": "square root of a number"}


def corpus_of(version: int, encoded: dict[str, Doc]) -> dict[str, Doc]:
    """The same ids with other vectors in every version: an answer of two versions is equal to none of them."""
    rng = random.Random(version)
    some = {
        f"d{i}": Doc({t: rng.randrange(1, 256) for t in rng.sample(TERMS, 8)}, f"version {version} group {i % 50}")
        for i in range(600 + 10 * version)
    }
    return some | encoded


@dataclass
class Served:
    """An application and its index."""

    index: Path
    bundle: Path
    client: ServedSearcher
    port: int
    encoded: dict[str, Doc]
    embedded: dict[str, Searcher] = field(default_factory=dict)
    publications: int = 0

    def publish(self) -> str:
        """Another version; its sha256."""
        make = corpus_of(self.publications, self.encoded)
        sha = make_index(self.index, make, bundle=self.bundle, shards=SHARDS, bm25=True).sha
        self.publications += 1
        snapshot = Snapshot(self.index, read_publication(self.index, self.publications))
        self.embedded[sha] = Searcher(snapshot)
        return sha


@pytest.fixture(scope="module")
def served(tiny_bundle: Path, ray_local: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    index = tmp_path_factory.mktemp("served") / "index"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    patch = pytest.MonkeyPatch()
    patch.setenv(SIGNING_KEY, private(KEYS[0]))
    patch.setenv(TRUSTED_KEYS, public(KEYS[0]))  # Ray runs already: its processes do not have the variable
    one = Served(index, tiny_bundle, None, port, encode_corpus(tiny_bundle, TEXTS))  # type: ignore[arg-type]
    one.publish()
    settings = ServeSettings(
        index=str(index),
        name=APPLICATION,
        shard_groups=SHARDS,
        replicas=REPLICAS,
        routers=1,
        cpus=0.05,
        poll_seconds=0.1,
        http_port=port,
        concurrency=4,
        queue=8,
        queue_s=10,  # a busy machine
        max_body_bytes=1 << 18,
    )
    try:
        one.client = start(settings)
        yield one
    finally:
        patch.undo()
        serve.shutdown()


def request(rng: random.Random) -> tuple[dict[int, float], int, dict]:
    """A vector, k and options."""
    vector = {term: rng.uniform(0.1, 4) for term in rng.sample(TERMS, rng.randint(1, 8))}
    options = rng.choice(
        [
            {},
            {"overlap_threshold": 0.4},
            {"min_terms": 2, "count": True},
            {"fields": ["text"]},
            {"rescore": 60, "qk": 3, "fields": ["text"]},
            {"deduplicate": "text"},
            {"filter": attribute("doc_id").starts_with("d1"), "count": True},
            {"min_score": 3.0, "deadline_ms": 60_000},
            {"hybrid": Hybrid(words=2.0), "text": "group 7"},
            {"hybrid": Hybrid(fusion="rrf"), "text": "version group 3"},
        ]
    )
    return vector, rng.randint(0, 30), options


def check(served: Served, found: SearchResult, asked: tuple[dict[int, float], int, dict]) -> None:
    vector, k, options = asked
    expected = served.embedded[found.version].search_vector(vector, k, **options)
    assert (found.hits, found.required, found.query) == (expected.hits, expected.required, expected.query)
    assert not found.partial
    if options.get("count"):
        assert (found.matched, found.matched_exact) == (expected.matched, True)


def kill_one(group: int) -> int:
    """SIGKILL to a replica of a shard group; its process id."""
    state = serve.get_deployment_handle(f"shards-{group}", APPLICATION).state.remote().result(timeout_s=30)
    os.kill(state["pid"], signal.SIGKILL)
    return state["pid"]


def campaign(served: Served, queries: int, publications: int) -> None:
    """Ask from four threads until everything has happened: each version is seen before the next one is published."""
    seen, lock, enough, failed = set(), Lock(), Event(), Event()
    asked, end = [0], time.monotonic() + 300

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not enough.is_set() and not failed.is_set():
                what = request(rng)
                found = served.client.search_vector(what[0], what[1], **what[2])
                check(served, found, what)
                with lock:
                    seen.add(found.version)
                    asked[0] += 1
        except BaseException:
            failed.set()
            raise

    def until(condition) -> None:
        while not condition() and not failed.is_set():
            assert time.monotonic() < end, f"{asked[0]} queries, {len(seen)} versions"
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(ask, seed) for seed in range(4)]
        try:
            for number in range(1, publications + 1):
                until(lambda: asked[0] >= number * queries // (publications + 2))  # noqa: B023 - used at once
                sha = served.publish()
                if number == publications // 2 + 1:
                    pid = kill_one(number % SHARDS)
                until(lambda: sha in seen)  # noqa: B023
            until(lambda: asked[0] >= queries)
        finally:
            enough.set()
        for thread in threads:
            thread.result()
    assert len(seen) >= publications
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_no_query_fails_or_mixes_versions_while_replicas_die(served: Served) -> None:
    campaign(served, queries=100, publications=2)


@pytest.mark.slow
def test_no_query_fails_or_mixes_versions_for_longer(served: Served) -> None:
    campaign(served, queries=1000, publications=5)


@pytest.mark.slow
def test_a_killed_router_is_replaced_while_clients_wait(served: Served) -> None:
    expected = newest(served).search_vector({2000: 1.0}, 5).hits
    pid = serve.get_deployment_handle("router", APPLICATION).state.remote().result(timeout_s=30)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert served.client.search_vector({2000: 1.0}, 5).hits == expected


@pytest.mark.slow
def test_an_application_that_cannot_start_reports_the_reason(served: Served, tmp_path: Path) -> None:
    try:
        with pytest.raises(UnavailableError, match="has no publication"):
            start(ServeSettings(index=str(tmp_path), name="broken", cpus=0.01))
    finally:
        serve.delete("broken")
    assert not newest(served).search_vector({}, 1).hits


def newest(served: Served) -> Searcher:
    """The embedded searcher of the version that is served, once the router follows."""
    sha = read_publication(served.index, served.publications).version
    end = time.monotonic() + 20
    while served.client.search_vector({}, 0).version != sha:
        assert time.monotonic() < end
        time.sleep(0.1)
    return served.embedded[sha]


def test_an_unsigned_publication_is_not_served(served: Served) -> None:
    current = newest(served).publication
    planted = replace(
        read_publication(served.index, 1), number=current.number + 1, previous=current.sha, signature=None
    )
    router, group = (serve.get_deployment_handle(name, APPLICATION) for name in ("router", "shards-0"))
    create_publication(served.index, planted)
    try:
        for handle in (router, group):
            end = time.monotonic() + 20
            while "SignatureError" not in (handle.state.remote().result(timeout_s=30)["problem"] or ""):
                assert time.monotonic() < end
                time.sleep(0.05)
        assert served.client.search_vector({2000: 1.0}, 1).version == current.version
    finally:
        (served.index / "publications" / publication_name(planted.number)).unlink()


def test_texts_batches_and_counts_equal_the_embedded_search(served: Served) -> None:
    embedded = newest(served)
    for text in ("how do threads lock", "json", ""):
        assert served.client.search(text, 3, fields=["text"]).hits == embedded.search(text, 3, fields=["text"]).hits
        assert served.client.count(text, min_terms=2) == embedded.count(text, min_terms=2)
    texts = ["a number", "", "a thread"]
    found = served.client.search_batch(texts, 4)
    assert [each.hits for each in found] == [each.hits for each in embedded.search_batch(texts, 4)]
    assert served.client.search_batch([]) == []


def test_the_client_has_the_other_methods_of_the_searcher(served: Served) -> None:
    embedded, client, text = newest(served), served.client, "how do threads lock"
    assert asyncio.run(client.search_async(text, 3)).hits == embedded.search(text, 3).hits
    assert (
        client.bm25("version group 3", 5, fields=["text"]).hits
        == embedded.bm25("version group 3", 5, fields=["text"]).hits
    )
    for query, options in [
        (text, {}),
        (text, {"hybrid": Hybrid(words=2.0), "qk": 5}),
        ({2000: 1.0, 2001: 2.0}, {}),
        ({2000: 1.0}, {"hybrid": Hybrid(), "text": "lock"}),
    ]:
        assert client.explain(query, "lock", **options) == embedded.explain(query, "lock", **options)
    with pytest.raises(QueryError, match="there is no document"):
        client.explain(text, "absent")
    for found, expected in zip(client.encode([text, ""]), embedded.encode([text, ""]), strict=True):
        assert (found.terms, found.ids.tolist()) == (expected.terms, expected.ids.tolist())
        assert found.weights.tolist() == expected.weights.tolist()


@pytest.mark.parametrize(
    ("vector", "k", "options"),
    [
        ({2000: float("nan")}, 3, {}),
        ({10**6: 1.0}, 3, {}),
        ({2000: 1.0}, -1, {}),
        ({2000: 1.0}, 3, {"fields": ["absent"]}),
        ({2000: 1.0}, 3, {"filter": attribute("absent") == 1}),
        ({2000: 1.0}, 3, {"overlap_threshold": 1.5}),
    ],
)
def test_a_wrong_request_has_the_error_of_the_embedded_search(served: Served, vector, k, options) -> None:
    with pytest.raises(QueryError) as expected:
        newest(served).search_vector(vector, k, **options)
    with pytest.raises(QueryError) as caught:
        served.client.search_vector(vector, k, **options)
    assert str(caught.value) == str(expected.value)


def test_a_passed_deadline_gives_a_partial_result(served: Served) -> None:
    result = served.client.search_vector({2000: 1.0}, 3, deadline_ms=0)
    assert result.partial
    assert not result.matched_exact


def post(served: Served, body: bytes, path: str = "/search") -> tuple[int, dict]:
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}{path}", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_http_reads_json_and_reports_errors(served: Served) -> None:
    embedded = newest(served)
    expression = attribute("doc_id").is_in(["d1", "d2", "lock"])
    asked = {"vector": {"the": 1.0, "lock": 2.0}, "k": 2, "filter": expression.to_json(), "fields": ["text"]}
    status, value = post(served, json.dumps(asked).encode())
    expected = embedded.search_vector(asked["vector"], 2, filter=expression, fields=["text"])
    assert (status, result_from_json(value).hits) == (200, expected.hits)
    status, value = post(served, json.dumps({"texts": ["a lock", "json"], "k": 1}).encode())
    assert (status, len(value["results"])) == (200, 2)
    for body, words in [
        (b"{", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b'"x"', "give an object"),
        (b"{}", "exactly one of"),
        (b'{"text": "a", "limit": 3}', "limit"),
        (b'{"text": "a", "k": "3"}', "k='3'"),
        (b'{"text": "a", "count": 1}', "count"),
        (b'{"text": "a", "fields": 7}', "fields"),
        (b'{"vector": [["a"]]}', "pair"),
        (b'{"vector": {"a": NaN}}', "nan"),
        (b'{"text": "a", "filter": {"field": "x"}}', "filter"),
        (b'{"text": "a", "filter": {"field": "x", "op": "eq", "value": 1}}', "no attribute"),
    ]:
        status, value = post(served, body)
        assert (status, value["error"]) == (400, "QueryError"), body
        assert words in value["message"]
    assert post(served, b"{}", "/other")[0] == 404


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_five_times_the_capacity_is_refused_and_the_index_recovers(served: Served) -> None:
    capacity, bodies = 4 + 8, [json.dumps({"vector": {t: 1.0}, "k": 500, "fields": ["text"]}).encode() for t in TERMS]
    large = b'{"texts": [' + b'"a",' * (1 << 17) + b'"a"]}'  # above the limit of a body
    bodies.append(large)
    pid = serve.get_deployment_handle("router", APPLICATION).state.remote().result(timeout_s=30)["pid"]
    before, end, statuses = memory_of(pid), time.monotonic() + 3, []

    def load(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < end:
            status, retry_after = status_of(served, rng.choice(bodies))
            statuses.append(status)
            assert (status == 503) == (retry_after is not None), (status, retry_after)

    with ThreadPoolExecutor(5 * capacity) as pool:
        for client in [pool.submit(load, seed) for seed in range(5 * capacity)]:
            client.result()
    stopped = time.monotonic()
    assert post(served, bodies[0])[0] == 200
    assert time.monotonic() - stopped < 2
    assert {200, 503} <= set(statuses) <= {200, 413, 503}  # a full queue refuses before a body is read
    assert status_of(served, large)[0] == 413
    assert memory_of(pid) - before < 100 << 20
    assert pid == serve.get_deployment_handle("router", APPLICATION).state.remote().result(timeout_s=30)["pid"]


def status_of(served: Served, body: bytes) -> tuple[int, str | None]:
    """Status and Retry-After of a search."""
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}/search", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return answer.status, answer.headers["Retry-After"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Retry-After"]


def test_every_listener_is_on_loopback(served: Served) -> None:
    found = listeners(os.getpid())
    assert kinds(found) >= {"control store", "scheduler", "agents", "Ray Serve", "HAProxy"}
    assert sum("haproxy" in one.process for one in found) == 1  # neither metrics nor statistics
    assert sum("ServeReplica" in one.process for one in found) > SHARDS * REPLICAS


def test_the_deployments_are_listed(served: Served) -> None:
    listed = deployments(APPLICATION)
    assert sorted(listed) == ["router", "shards-0", "shards-1", "shards-2"]
    assert "1 running" in listed["router"]


def test_clients_connect_by_name(served: Served) -> None:
    assert ServedSearcher.connect(APPLICATION).search_vector({2000: 1.0}, 1).hits
