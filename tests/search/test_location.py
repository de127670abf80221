"""Searching a remote index: download into the node cache, refresh, and eviction."""

import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, LineageError, PublicationError
from lsr_prod.search import Searcher
from lsr_prod.search.open_index import split_publication
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from lsr_prod.storage.formats.index_format import Publication
from tests.indexing.corpus import Doc, make_index
from tests.indexing.remote import upload_current
from tests.storage.test_artifacts import descriptors_in

DAMAGED_CALLS = {
    "search": ("search_vector", ({5: 1.0},)),
    "match": ("match_terms", ([5],)),
    "explain": ("explain", ({5: 1.0}, "d1")),
}
CORPUS = {f"d{i}": Doc({i % 5: 5, 5: 1 + i}) for i in range(30)}


@pytest.mark.long
def test_remote_index_is_cached_refreshed_and_evicted(tmp_path, s3_options):
    home, remote = tmp_path / "home", Store("s3://lsr/located", s3_options)
    make_index(home, CORPUS, vocabulary_size=6, shards=2)
    upload_current(home, remote)
    searcher = Searcher.open(remote.uri, cache=tmp_path / "cache", storage_options=s3_options)
    local = Searcher.open(home)
    assert searcher.search_vector({5: 1.0, 2: 2.0}).hits == local.search_vector({5: 1.0, 2: 2.0}).hits
    assert not searcher.refresh()
    make_index(home, {**CORPUS, "new": Doc({5: 255})}, vocabulary_size=6, shards=2)
    upload_current(home, remote)
    before = searcher.snapshot
    assert searcher.refresh()
    assert searcher.search_vector({5: 1.0}).hits[0].doc_id == "new"
    assert searcher.match_terms([5], 1) == {*CORPUS, "new"}
    assert used(searcher) == 2
    del before
    gc.collect()
    assert used(searcher) == 1  # the previous version was released with its last reader


def used(searcher: Searcher) -> int:
    return sum(map(len, searcher._location.cache._marks.values()))


def test_remote_index_without_cache_uses_the_node_cache_of_the_user(tmp_path, s3_options, monkeypatch):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "node"))
    remote = uploaded(tmp_path / "home", "s3://lsr/located-user", s3_options)
    searcher = Searcher.open(remote.uri, storage_options=s3_options)
    assert searcher.snapshot.index.is_relative_to(tmp_path / "node")
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o700


@pytest.mark.long
def test_damaged_file_in_the_cache_is_fetched_again_when_the_index_is_opened(tmp_path, s3_options):
    remote = uploaded(tmp_path / "home", "s3://lsr/located-damaged", s3_options)
    options = {"cache": tmp_path / "cache", "storage_options": s3_options}
    folder = Searcher.open(remote.uri, **options).snapshot.index
    hits = Searcher.open(tmp_path / "home").search_vector({5: 1.0}).hits
    for path in [one for one in folder.rglob("*") if one.is_file() and one.stat().st_size > 100]:
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[50] ^= 1
        path.write_bytes(data)
        assert Searcher.open(remote.uri, verify=True, **options).search_vector({5: 1.0}).hits == hits, path


@pytest.mark.parametrize("call", DAMAGED_CALLS)
def test_damage_that_a_query_found_is_repaired_by_the_next_refresh(call, tmp_path, s3_options):
    remote = uploaded(tmp_path / "home", "s3://lsr/located-lazily", s3_options)
    options = {"cache": tmp_path / "cache", "storage_options": s3_options}
    method, arguments = DAMAGED_CALLS[call]
    expected = getattr(Searcher.open(tmp_path / "home"), method)(*arguments)
    searcher = Searcher.open(remote.uri, **options)  # verifies pages when they are read
    for path in searcher.snapshot.index.rglob("impacts/ids.npy"):
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
    with pytest.raises(ArtifactError):
        getattr(searcher, method)(*arguments)
    assert not searcher.refresh()  # the version is the same
    found = getattr(searcher, method)(*arguments)
    assert (found.hits == expected.hits) if method == "search_vector" else (found == expected)
    assert used(searcher) <= 2


def test_repair_replaces_a_mapped_file_and_never_writes_into_it(tmp_path, s3_options):
    remote = uploaded(tmp_path / "home", "s3://lsr/located-mapped", s3_options)
    options = {"cache": tmp_path / "cache", "storage_options": s3_options}
    searcher = Searcher.open(remote.uri, **options)
    hits = searcher.search_vector({5: 1.0}).hits
    path = min(searcher.snapshot.index.rglob("docs.arrow"))
    path.chmod(0o644)
    with path.open("r+b") as mapped:
        mapped.write(b"\xff")
        mapped.flush()
        size = os.fstat(mapped.fileno()).st_size
        assert Searcher.open(remote.uri, verify=True, **options).search_vector({5: 1.0}).hits == hits
        assert os.fstat(mapped.fileno()).st_size == size  # pages beyond the end of a mapped file raise SIGBUS
        assert os.pread(mapped.fileno(), 1, 0) == b"\xff"
        assert searcher.search_vector({5: 1.0}).hits == hits


@pytest.mark.long
def test_failed_refresh_keeps_neither_descriptors_nor_uses(tmp_path, s3_options):
    remote = uploaded(tmp_path / "home", "s3://lsr/located-failing", s3_options)
    options = {"cache": tmp_path / "cache", "storage_options": s3_options}
    searcher = Searcher.open(remote.uri, **options)
    wrong = replace(searcher.version, vocabulary_sha256="0" * 64)  # fetched whole, but refused when it is opened
    remote.put_new(f"versions/{wrong.sha}.json", record_bytes(wrong.to_json()))
    remote.put_new("publications/000002.json", record_bytes(Publication(2, wrong.sha, "now").to_json()))
    before = descriptors_in(tmp_path / "cache")
    for _ in range(3):
        with pytest.raises(LineageError):
            searcher.refresh()
        with pytest.raises(LineageError):
            Searcher.open(remote.uri, **options)
    assert descriptors_in(tmp_path / "cache") == before
    assert used(searcher) == 1
    assert searcher.publication.number == 1


def test_index_in_a_cache_that_cannot_be_written_is_opened(tmp_path, s3_options, monkeypatch):
    remote = uploaded(tmp_path / "home", "s3://lsr/located-read-only", s3_options)
    options = {"cache": tmp_path / "cache", "storage_options": s3_options}
    folder = Searcher.open(remote.uri, **options).snapshot.index
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("lsr_prod.storage.cache_folder.mark_used", lambda _: pytest.fail("the cache is read-only"))
    for publication in (folder / "publications").iterdir():
        publication.unlink()
    searcher = Searcher.open(remote.uri, verify=True, **options)
    assert searcher.snapshot.index == folder
    assert not list((folder / "publications").iterdir())


def uploaded(home: Path, uri: str, options: dict[str, str]) -> Store:
    remote = Store(uri, options)
    make_index(home, CORPUS, vocabulary_size=6, shards=2)
    upload_current(home, remote)
    return remote


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("index", ("index", None)),
        ("index@41", ("index", 41)),
        ("s3://bucket/a@1/index@7", ("s3://bucket/a@1/index", 7)),
        ("index@x", ("index@x", None)),
        ("index@", ("index@", None)),
        ("@3", ("@3", None)),
        ("index@1@2", ("index@1", 2)),
    ],
)
def test_number_after_the_last_at_sign_names_a_publication(place: str, expected: tuple[str, int | None]) -> None:
    assert split_publication(place) == expected


def test_earlier_publication_is_open_until_a_refresh(tmp_path: Path) -> None:
    make_index(tmp_path / "index", CORPUS, vocabulary_size=6)
    make_index(tmp_path / "index", {"d1": CORPUS["d1"]}, vocabulary_size=6)
    with Searcher.open(tmp_path / "index", publication=1) as searcher:
        assert (searcher.publication.number, searcher.documents) == (1, 30)
        assert searcher.refresh() is True
        assert (searcher.publication.number, searcher.documents) == (2, 1)
    with pytest.raises(PublicationError, match="has no publication 3"):
        Searcher.open(tmp_path / "index", publication=3)
