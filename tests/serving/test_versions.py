"""The versions that a replica holds."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.serving.replica import Pin, Versions
from lsr_prod.storage import Store
from lsr_prod.storage.publications import read_publication
from tests.indexing.corpus import Doc, make_index
from tests.indexing.remote import upload_current

QUERY = ShardQuery(np.zeros(1, np.int32), np.ones(1, np.float32), np.ones(1, np.uint8), 1, 1)


def publish(index, number):
    corpus = {f"d{i}": Doc({i % 5: 1 + number}) for i in range(40)}
    make_index(index, corpus, vocabulary_size=5, shards=4)
    return Pin(number, read_publication(index, number).version)


def test_the_newest_version_stays_open_with_the_most_recently_used_one(tmp_path):
    pins = [publish(tmp_path, 1)]
    versions = Versions(tmp_path, 0, 1)
    pins += [publish(tmp_path, number) for number in (2, 3)]
    first = versions.get(pins[0])
    assert versions.get(pins[2]).publication.number == 3
    assert versions.get(pins[0]) is first
    assert versions.get(pins[1]).publication.number == 2
    assert versions.held == [pins[2].version, pins[1].version]
    assert versions.last.version.sha == pins[1].version
    assert versions.get(pins[2]).version.sha == pins[2].version


def test_the_current_version_stays_open_while_routers_read_two_older_ones(tmp_path):
    pins = [publish(tmp_path, number) for number in (1, 2)]
    versions = Versions(tmp_path, 0, 1)
    versions.get(pins[0])
    current = publish(tmp_path, 3).version
    assert versions.follow()
    for pin in pins * 2:
        assert versions.get(pin).version.sha == pin.version
        assert current in versions.held
        assert len(versions.held) == 2
        assert not versions.follow()


def test_a_query_finishes_on_a_dropped_version(tmp_path):
    pins = [publish(tmp_path, 1)]
    versions = Versions(tmp_path, 0, 1)
    first = versions.get(pins[0])
    for number in (2, 3):
        versions.get(publish(tmp_path, number))
    assert pins[0].version not in versions.held
    assert first.find("d7")[0] in range(4)


def test_a_group_opens_its_shards_of_each_version(tmp_path):
    publish(tmp_path, 1)
    assert [list(Versions(tmp_path, group, 3).last.readers) for group in range(3)] == [[0, 3], [1], [2]]
    assert list(Versions(tmp_path, 4, 5).last.readers) == []


def test_shards_of_both_versions_are_opened_once(tmp_path):
    pin = publish(tmp_path, 1)
    versions = Versions(tmp_path, 0, 1)
    corpus = {f"d{i}": Doc({i % 5: 2}) for i in range(40)}
    make_index(tmp_path, corpus, vocabulary_size=5, shards=4, deleted=["d3"])
    assert versions.follow()
    assert not versions.follow()
    after, before = versions.last, versions.get(pin)
    assert before is not after
    assert [reader.shard for reader in before.readers.values()] == [reader.shard for reader in after.readers.values()]
    assert (before.version.documents, after.version.documents) == (40, 39)


def test_concurrent_threads_open_a_version_once(tmp_path):
    publish(tmp_path, 1)
    versions = Versions(tmp_path, 0, 1)
    pin = publish(tmp_path, 2)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: versions.get(pin), range(32)))
    assert all(each is found[0] for each in found)


def test_a_pin_without_a_publication_is_refused(tmp_path):
    pin = publish(tmp_path, 1)
    versions = Versions(tmp_path, 0, 1)
    with pytest.raises(PublicationError, match="no publication 9"):
        versions.get(Pin(9, "0" * 64))
    with pytest.raises(PublicationError, match="same index"):
        versions.get(Pin(1, "0" * 64))
    assert versions.held == [pin.version]


def test_a_damaged_version_keeps_the_open_versions(tmp_path):
    pin = publish(tmp_path, 1)
    versions = Versions(tmp_path, 0, 1)
    new = publish(tmp_path, 2)
    shutil.rmtree(tmp_path / "shards")
    with pytest.raises(ArtifactError):
        versions.follow()
    with pytest.raises(ArtifactError):
        versions.get(new)
    assert versions.get(pin).version.sha == pin.version


def test_a_damaged_page_of_the_cache_is_fetched_again(tmp_path, s3_options, monkeypatch):
    pin = publish(tmp_path / "home", 1)
    place = f"s3://lsr/{tmp_path.name}"
    upload_current(tmp_path / "home", Store(place, s3_options))
    expected = Versions(tmp_path / "home", 0, 1).last.match(QUERY)
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "node"))
    versions = Versions(place, 0, 1, s3_options)
    for path in versions.last.index.rglob("impacts/*.npy"):
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
    with pytest.raises(ArtifactError):
        versions.last.match(QUERY)
    assert not versions.follow()
    versions.report_damage(pin.version)
    assert versions.follow()
    assert versions.last.match(QUERY).ranked == expected.ranked
    assert not versions.follow()
