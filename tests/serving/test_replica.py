"""A replica of a shard group, in this process."""

import asyncio
import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lsr_prod.config import ServeSettings
from lsr_prod.errors import PublicationError
from lsr_prod.search import Searcher
from lsr_prod.search.candidates import CollectPlan
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.serving.replica import Pin, ShardReplica
from lsr_prod.serving.router import Router
from lsr_prod.serving.wire import result_from_json
from lsr_prod.storage import Store
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import STEP, Doc, make_index
from tests.indexing.remote import upload_current
from tests.search.test_parallel_searcher import CORPUS, V

QUERY = ShardQuery(np.array([0, 1], np.int32), np.array([2, 1], np.float32) * STEP, np.ones(2, np.uint8), 1, 5)


@pytest.fixture
def index(tmp_path, unpatched_ray):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3)
    return tmp_path


def test_a_replica_searches_its_own_shards(index):
    async def run():
        replicas = [replica_of(index, group, 2, threads=2, poll_seconds=60) for group in range(2)]
        publication = current_publication(index)
        pin = Pin(publication.number, publication.version)
        found = [await replica.call(pin, None, "match", QUERY) for replica in replicas]
        assert [sorted({row[2] for row in each.ranked}) for each in found] == [[0, 2], [1]]
        ranked = sorted(row for each in found for row in each.ranked)[:5]
        expected = Searcher.open(index).search_vector({0: 2.0, 1: 1.0}, 5, fields=["text"]).hits
        assert [(doc_id, -negative, overlap) for negative, doc_id, _, _, overlap in ranked] == [
            (hit.doc_id, hit.score, hit.overlap) for hit in expected
        ]
        one = found[1].ranked[:2]
        assert [row[1] for row in await replicas[1].call(pin, None, "rescore", one, QUERY.ids, QUERY.weights)] == [
            r[1] for r in one
        ]
        texts = await replicas[1].call(pin, None, "fields", one, ["text"])
        assert [value["text"] for value in texts] == [CORPUS[row[1]].text for row in one]
        late = await replicas[0].call(pin, -1.0, "match", QUERY)
        assert (late.partial, late.ranked) == (True, [])
        plan = CollectPlan(5, None, False, ())
        collected = [await replica.call(pin, None, "collect", QUERY, plan) for replica in replicas]
        count = Searcher.open(index).count({0: 2.0, 1: 1.0})
        assert (sum(each.matched for each in collected), any(each.partial for each in collected)) == (count, False)
        assert (await replicas[0].call(pin, -1.0, "collect", QUERY, plan)).partial
        state = await replicas[0].state()
        assert state == {"pid": os.getpid(), "versions": [pin.version], "problem": None}

    asyncio.run(run())


def test_time_in_the_queue_of_a_replica_counts_for_the_deadline(index):
    async def run():
        replica, opened = replica_of(index, 0, 1, threads=1, poll_seconds=60), threading.Event()
        publication = current_publication(index)
        replica._pool.submit(opened.wait, 10)
        waiting = asyncio.create_task(replica.call(Pin(publication.number, publication.version), 0.05, "match", QUERY))
        await asyncio.sleep(0.1)
        opened.set()
        found = await waiting
        assert (found.partial, found.ranked) == (True, [])

    asyncio.run(run())


@pytest.mark.long
def test_replicas_and_router_read_an_object_store_through_the_node_cache(index, tmp_path, s3_options, monkeypatch):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    remote = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    upload_current(index, remote)
    settings = ServeSettings(index=remote.uri, shard_groups=2, poll_seconds=0.05, concurrency=2, attempts=1)
    replicas = [ShardReplica(group, settings=settings, options=s3_options) for group in range(2)]
    router = Router(*(in_process(each) for each in replicas), settings=settings, options=s3_options)
    asked = {"vector": {"t0": 1.0}, "k": 3, "fields": ["text"]}
    expected = Searcher.open(index).search_vector(asked["vector"], 3, fields=["text"])
    assert result_from_json(asyncio.run(router.answer(asked))["results"][0]).hits == expected.hits
    make_index(index, {"new": Doc({0: 9}, "a text")}, vocabulary_size=V)
    upload_current(index, remote)
    end = time.monotonic() + 20
    while [hit["doc_id"] for hit in asyncio.run(router.answer(asked))["results"][0]["hits"]] != ["new"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert asyncio.run(router.health())["status"] == "ok"


def replica_of(index, group, groups, **settings):
    return ShardReplica(group, settings=ServeSettings(index=str(index), shard_groups=groups, **settings))


def in_process(replica):
    """The handle of a deployment whose only replica is in this process."""
    names = ("call", "state")
    return SimpleNamespace(**{name: SimpleNamespace(remote=getattr(replica, name)) for name in names})


def test_a_group_with_empty_shards_returns_no_hits(tmp_path, unpatched_ray):
    make_index(tmp_path, {"one": Doc({0: 9})}, vocabulary_size=V, shards=3)

    async def run():
        publication = current_publication(tmp_path)
        pin = Pin(publication.number, publication.version)
        replicas = [replica_of(tmp_path, group, 3, threads=1, poll_seconds=60) for group in range(3)]
        found = [await replica.call(pin, None, "match", QUERY) for replica in replicas]
        assert sorted(row[1] for each in found for row in each.ranked) == ["one"]

    asyncio.run(run())


def test_read_only_arrays_of_a_remote_call_are_answered(index):
    async def run():
        replica = replica_of(index, 0, 1, threads=1, poll_seconds=60)
        publication = current_publication(index)
        pin = Pin(publication.number, publication.version)
        arrays = {name: as_ray_brings(getattr(QUERY, name)) for name in ("ids", "weights", "counted")}
        for options in ({}, {"required": 2}, {"k": 1}, {"floor": 0.5}):
            found, brought = [
                await replica.call(pin, None, "match", replace(query, **options))
                for query in (QUERY, replace(QUERY, **arrays))
            ]
            assert found == brought
            assert await replica.call(pin, None, "rescore", found.ranked, arrays["ids"], arrays["weights"])

    asyncio.run(run())


def as_ray_brings(array):
    return np.frombuffer(array.tobytes(), array.dtype)  # read-only


def test_a_replica_opens_publications_and_keeps_the_previous_version(index):
    async def run():
        replica = replica_of(index, 0, 1, threads=1, poll_seconds=0.05)
        before = current_publication(index)
        make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V)
        after = current_publication(index)
        for _ in range(200):
            if len((await replica.state())["versions"]) == 2:
                break
            await asyncio.sleep(0.05)
        assert (await replica.state())["versions"] == [before.version, after.version]
        assert len((await replica.call(Pin(before.number, before.version), None, "match", QUERY)).ranked) >= 5
        assert len((await replica.call(Pin(after.number, after.version), None, "match", QUERY)).ranked) == 1
        with pytest.raises(PublicationError):
            await replica.call(Pin(3, "0" * 64), None, "match", QUERY)

    asyncio.run(run())
