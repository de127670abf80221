"""Indexes that are built, changed and cleaned up in an object store."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from lsr_prod import Searcher
from lsr_prod.cluster.workers import IN_PROCESS
from lsr_prod.config import Deployment, IndexSettings, StorageSettings
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing import (
    build_index,
    collect_garbage,
    delete_documents,
    garbage,
    publish,
    restore_documents,
    rollback,
)
from lsr_prod.indexing.tombstones import find_documents, read_ids
from lsr_prod.jobs import index
from lsr_prod.storage import Store, index_shards
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.index_shards import find_shard
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage.publications import create_publication, publication_numbers, read_publication
from tests.indexing.contents import current, dump
from tests.indexing.corpus import Doc
from tests.indexing.increments import Increment, change_table, deployment, make_world
from tests.indexing.remote import make_versions, upload_version
from tests.storage.node_caches import fetch_current_version

CORPUS = {f"doc{i:03d}": Doc({1 + i % 7: 1 + i % 255, 9: 3}, f"text {i}") for i in range(60)}
HOUR = 3600.0
CHANGES = {"max_delta": 0.5, "max_delta_shards": 1}


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/index-{tmp_path.name}", s3_options)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build shards in this process, where a test replaces functions."""
    monkeypatch.setattr("lsr_prod.indexing.build.Workers", lambda _, **__: IN_PROCESS)


def at(root: Path, index: Store, **changes: object) -> Deployment:
    """Return the settings of an index of the table of ``make_world`` in an object store."""
    given = {"table": str(root / "table"), "bundle": str(root / "bundle"), "output": index.uri, "shards": 2}
    settings = IndexSettings(**{**given, "text_fields": ["text"], **changes})
    return Deployment(index=settings, storage=StorageSettings(options=index.options))


def fetched(index: Store, root: Path) -> Path:
    """Return the current version as a folder."""
    return fetch_current_version(NodeCache(root / "cache"), index)[0]


def aged(index: Store, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store's clock go on."""
    real = Store.now
    monkeypatch.setattr(Store, "now", lambda store, folder: real(store, folder) + hours * HOUR)


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_index_in_an_object_store_equals_that_in_a_folder_after_every_change(tmp_path: Path, remote: Store) -> None:
    make_world(tmp_path, CORPUS)
    settings = [deployment(tmp_path, **CHANGES), at(tmp_path, remote, **CHANGES)]
    places: list[Path | Store] = [tmp_path / "index", remote]
    first = [build_index(one) for one in settings]
    assert first[0].version == first[1].version
    assert first[1].mode == "full"
    assert build_index(settings[1]).shards_reused == 2
    versions = []
    for number in range(2):  # a delta shard, and one that merges it
        change_table(
            tmp_path, Increment({f"new{number}": Doc({3: 3}), "doc001": Doc({4: 4 + number})}, ["doc002"][number:])
        )
        built = [build_index(one) for one in settings]
        assert built[0].version == built[1].version
        versions.append(built[1].mode)
    assert versions == ["delta", "merge"]
    hidden = [delete_documents(place, ["doc003", "new0", "unknown"]).publication.version for place in places]
    assert hidden[0] == hidden[1]
    restored = [restore_documents(place, ["new0"], options=remote.options).publication.version for place in places]
    assert restored[0] == restored[1]
    back = [rollback(place, 1).version for place in places]
    assert back[0] == back[1]
    assert publication_numbers(remote) == [1, 2, 3, 4, 5, 6]
    assert dump(fetched(remote, tmp_path)) == dump(tmp_path / "index")
    searcher = Searcher.open(remote.uri, cache=tmp_path / "searcher", storage_options=remote.options)
    assert searcher.documents == current(tmp_path / "index").documents == 59


@pytest.mark.usefixtures("ray_local")
def test_shard_of_a_killed_worker_is_built_again_with_equal_bytes(tmp_path: Path, remote: Store) -> None:
    make_world(tmp_path, CORPUS)
    done, killed = threading.Event(), []

    def kill_one() -> None:
        while not killed and not done.is_set():
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if process.cmdline()[:1] == ["ray::_build_base"] and not killed:
                        process.kill()
                        killed.append(process.pid)

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        built = build_index(at(tmp_path, remote))
    finally:
        done.set()
        killer.join()
    assert len(killed) == 1
    assert built.version == build_index(deployment(tmp_path)).version
    assert dump(fetched(remote, tmp_path)).keys() == CORPUS.keys()


@pytest.mark.usefixtures("in_process")
def test_build_leaves_nothing_on_the_disk(tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make_world(tmp_path, CORPUS)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(tmp_path.rglob("*"))
    build_index(at(tmp_path, remote))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("in_process")
def test_only_ids_of_documents_are_fetched(tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {f"doc{i:03d}": Doc({1: 1}, f"{i} " * 60_000) for i in range(40)}
    make_world(tmp_path, long)
    build_index(at(tmp_path, remote, shards=1))
    (shard,) = current(remote).shards
    size = next(file.size for file in shard.files if file.path == "docs.arrow")
    counted = SimpleNamespace(bytes=0)
    from lsr_prod.storage import remote as client

    real = client._RemoteFile._read

    def piece(self: object, start: int, end: int) -> bytes:
        counted.bytes += end - start
        return real(self, start, end)

    monkeypatch.setattr(client._RemoteFile, "_read", piece)
    assert sorted(read_ids(remote, shard).to_pylist()) == sorted(long)
    assert counted.bytes < size / 2


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_builders_of_one_shard_end_with_the_manifest_of_the_first(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path, CORPUS)
    real, both = index_shards._send, threading.Barrier(2)

    def send(*arguments: object) -> None:
        both.wait(30)
        real(*arguments)

    found: list[str] = []

    def build() -> None:
        found.append(build_index(at(tmp_path, remote, shards=1)).version)

    build_index(at(tmp_path, remote, shards=2, publish=False))  # the bundle is there
    monkeypatch.setattr(index_shards, "_send", send)
    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert publication_numbers(remote) == [1]
    assert dump(fetched(remote, tmp_path)).keys() == CORPUS.keys()


@pytest.mark.usefixtures("in_process")
def test_build_after_a_crash_between_files_and_manifest_sends_only_the_manifest(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path, CORPUS)
    real = Store.put_new

    def crash(store: Store, name: str, data: bytes) -> bool:
        if name.endswith("shard.json"):
            raise KeyboardInterrupt
        return real(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_new", crash)
        with pytest.raises(KeyboardInterrupt):
            build_index(at(tmp_path, remote, shards=1))
    sent = {entry.name: entry.modified for entry in remote.entries("files")}
    assert len(sent) > 20
    assert remote.names("shards") == []
    build_index(at(tmp_path, remote, shards=1))
    assert {entry.name: entry.modified for entry in remote.entries("files")} == sent
    assert dump(fetched(remote, tmp_path)).keys() == CORPUS.keys()


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_incomplete_shard_is_built_again(tmp_path: Path, remote: Store) -> None:
    make_world(tmp_path, CORPUS)
    build_index(at(tmp_path, remote, publish=False))
    name = sorted(remote.names("shards"))[0]
    shard = find_shard(remote, name.split("/")[1])
    assert shard is not None
    remote.delete(f"files/{shard.files[3].sha256}")
    summary = build_index(at(tmp_path, remote))
    assert (summary.shards_reused, summary.publication) == (1, 1)
    assert dump(fetched(remote, tmp_path)).keys() == CORPUS.keys()


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_version_with_a_missing_file_is_not_published(tmp_path: Path, remote: Store) -> None:
    make_world(tmp_path, CORPUS)
    build_index(at(tmp_path, remote))
    file = current(remote).shards[0].files[2]
    remote.delete(f"files/{file.sha256}")
    with pytest.raises(ArtifactError, match=r"is missing; .* lsr-prod index build"):
        delete_documents(remote, ["doc001"])
    assert publication_numbers(remote) == [1]
    summary = build_index(at(tmp_path, remote))
    assert (summary.mode, summary.shards_reused) == ("unchanged", 1)
    assert delete_documents(remote, ["doc001"]).publication.number == 2
    assert len(find_documents(remote, current(remote).shards[0], read_ids(remote, current(remote).shards[0]))[0]) > 0


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_garbage_collection_deletes_what_no_kept_publication_names(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path, CORPUS)
    build_index(at(tmp_path, remote))
    delete_documents(remote, ["doc003"])
    change_table(tmp_path, Increment({"new": Doc({3: 3})}))
    build_index(at(tmp_path, remote))
    build_index(at(tmp_path, remote, shards=1))
    remote.put_new(f"files/{'0' * 64}", b"half")  # of a build that was killed
    remote.put_new("files/notes.txt", b"mine")
    before = remote.names()
    assert collect_garbage(remote, keep=1, age_s=HOUR).objects == 0
    assert remote.names() == before
    found = dump(fetched(remote, tmp_path))
    aged(remote, 2, monkeypatch)
    collected = collect_garbage(remote, keep=1, age_s=HOUR)
    assert (collected.publications, collected.size > 0) == (3, True)
    assert len(before) - len(remote.names()) == collected.objects + 3
    version = current(remote)
    assert remote.names("publications") == ["publications/000004.json"]
    assert remote.names("versions") == [f"versions/{version.sha}.json"]
    assert remote.names("shards") == [f"shards/{version.shards[0].sha}/shard.json"]
    assert f"files/{'0' * 64}" not in remote.names("files")
    assert "files/notes.txt" in remote.names("files")
    assert dump(fetched(remote, tmp_path / "again")) == found
    assert collect_garbage(remote, keep=1, age_s=HOUR).objects == 0
    assert delete_documents(remote, ["doc030"]).publication.number == 5


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_garbage_collection_keeps_old_files_that_a_build_uses_again(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path, CORPUS)
    build_index(at(tmp_path, remote, publish=False))  # not published: all of it becomes garbage
    names = remote.names()
    manifest = sorted(remote.names("shards"))[0]
    real, old = Store.entries, {}

    def entries(store: Store, prefix: str = "") -> list[object]:
        """Make all objects two hours older, except the manifest that a build touches."""
        return [replace(one, modified=one.modified - old.get(one.name, 2 * HOUR)) for one in real(store, prefix)]

    real_entry = Store.entry

    def entry(store: Store, name: str) -> object:
        found = real_entry(store, name)
        young = 0.0 if name.startswith(("publications/", "versions/.")) else 2 * HOUR
        return found and replace(found, modified=found.modified - old.get(name, young))

    monkeypatch.setattr(Store, "entries", entries)
    monkeypatch.setattr(Store, "entry", entry)
    old[manifest] = 0.0
    collect_garbage(remote, keep=1, age_s=HOUR)
    monkeypatch.undo()
    assert remote.names("shards") == [manifest]
    shard = find_shard(remote, manifest.split("/")[1])
    assert shard is not None
    assert {file.sha256 for file in shard.files} == {name[6:] for name in remote.names("files")}
    assert len(names) > len(remote.names()) > 20
    assert build_index(at(tmp_path, remote)).shards_reused == 1


@pytest.mark.long
def test_jobs_change_an_index_in_an_object_store(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_world(tmp_path, CORPUS)
    settings = at(tmp_path, remote)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deployment.yaml").write_text(settings.model_dump_json(exclude_unset=True))
    for job, more in (
        (index.build, []),
        (index.takedown, ["--id", "doc003"]),
        (index.restore, ["--id", "doc003"]),
        (index.takedown, ["--id", "doc004"]),
        (index.rollback, ["--to", "2"]),
    ):
        assert job.run(["--config", "deployment.yaml", *more]) == 0
    assert publication_numbers(remote) == [1, 2, 3, 4, 5]
    assert dump(fetched(remote, tmp_path)).keys() == CORPUS.keys() - {"doc003", "doc004"}
    assert not list(tmp_path.glob("s3*"))


@pytest.mark.long
def test_rollback_during_a_garbage_collection_is_readable(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_versions(tmp_path / "local", 3)
    for number in publication_numbers(tmp_path / "local"):
        publication = read_publication(tmp_path / "local", number)
        upload_version(tmp_path / "local", publication.version, remote)
        create_publication(remote, publication)
    time.sleep(12)  # so that the files are old, and what the rollback touches is not
    has_read, names_are_read, deletions = threading.Event(), threading.Event(), []
    take_down, delete = publish.take_down, garbage._delete

    def slow_take_down(*arguments: Any) -> IndexVersion:
        has_read.set()
        assert names_are_read.wait(60)
        return take_down(*arguments)

    def delete_after_rollback(*arguments: Any) -> list[Any]:
        deletions.append(arguments)
        if len(deletions) == 2:  # the first deletes versions, the second shards
            names_are_read.set()
            rolling.join()
        return delete(*arguments)

    monkeypatch.setattr(publish, "take_down", slow_take_down)
    monkeypatch.setattr(garbage, "_delete", delete_after_rollback)
    rolling = threading.Thread(target=rollback, args=(remote, 1))
    rolling.start()
    assert has_read.wait(60)
    collect_garbage(remote, keep=1, age_s=10)
    assert publication_numbers(remote)[-1] == 4
    with Searcher.open(remote.uri, cache=tmp_path / "cache", storage_options=remote.options) as searcher:
        assert searcher.documents
