"""Retention deletes nothing that is published, pinned or read, also while readers open versions."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lsr_prod import Searcher
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing import collect_garbage, rollback
from lsr_prod.storage import Store
from lsr_prod.storage.index_versions import check_files
from lsr_prod.storage.publications import pin_publication, publication_numbers, unpin_publication
from lsr_prod.storage.version_locks import is_read
from tests.indexing.publishing import publish
from tests.indexing.remote import make_versions, upload_current, upload_version

READ = """
import sys
from lsr_prod import Searcher
searcher = Searcher.open(sys.argv[1])
print(searcher.documents, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return an index folder with four unpublished versions that share only the bundle."""
    index = tmp_path / "index"
    shas = [version.sha for version in make_versions(index, 4, documents=20)]
    for publication in (index / "publications").glob("*.json"):
        publication.unlink()
    return index, shas


def old(index: Path) -> None:
    """Let all files be two hours older than now."""
    for path in index.rglob("*"):
        then = time.time() - 7200
        os.utime(path, (then, then))


def versions(index: Path) -> set[str]:
    return {path.stem for path in (index / "versions").glob("*.json")}


def collect(index: Path | Store, keep: int = 1) -> None:
    collect_garbage(index, keep=keep, age_s=3600.0 if isinstance(index, Path) else -60.0)


def test_pinned_version_is_kept_until_it_is_unpinned(made: tuple[Path, list[str]]) -> None:
    index, shas = made
    for sha in shas[:3]:
        publish(index, sha)
    pin_publication(index, 1, by="ada", reason="audit")
    old(index)
    collect(index)
    assert publication_numbers(index) == [1, 3]
    assert versions(index) == {shas[0], shas[2]}
    check_files(index, Searcher.open(index).version)
    assert rollback(index, 1).version == shas[0]
    unpin_publication(index, 1)
    publish(index, shas[2])
    old(index)
    collect(index)
    assert versions(index) == {shas[2]}


def test_version_that_a_process_reads_is_kept_until_the_process_is_killed(made: tuple[Path, list[str]]) -> None:
    index, shas = made
    publish(index, shas[0])
    with subprocess.Popen(
        [sys.executable, "-c", READ, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "20\n"
        publish(index, shas[1])
        old(index)
        collect(index)
        assert publication_numbers(index) == [2]
        assert versions(index) == {shas[0], shas[1]}
        assert is_read(index, shas[0])
        assert not is_read(index, shas[1])
        reader.kill()
    old(index)
    collect(index)
    assert versions(index) == {shas[1]}
    assert len(list((index / "shards").iterdir())) == 2


def test_version_of_a_searcher_is_released_when_it_follows(made: tuple[Path, list[str]]) -> None:
    index, shas = made
    publish(index, shas[0])
    searcher = Searcher.open(index)
    publish(index, shas[1])
    assert is_read(index, shas[0])
    assert searcher.refresh()
    assert not is_read(index, shas[0])
    assert is_read(index, shas[1])


def test_reader_whose_version_is_deleted_before_it_is_open_opens_the_next(
    made: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, shas = made
    publish(index, shas[0])
    from lsr_prod.storage import version_locks

    lock = version_locks.lock_version

    def late(folder: Path, sha: str) -> int | None:
        if sha == shas[0]:
            publish(index, shas[1])
            old(index)
            collect(index)
        return lock(folder, sha)

    monkeypatch.setattr(version_locks, "lock_version", late)
    assert Searcher.open(index).publication.version == shas[1]


@contextmanager
def readers(count: int, place: Path | Store, cache: Path) -> Iterator[list[Exception]]:
    """Open the index again and again in threads, and search it; yield the list of their errors."""
    errors: list[Exception] = []
    done = threading.Event()

    def read(number: int) -> None:
        options = {} if isinstance(place, Path) else {"storage_options": place.options, "cache": cache / str(number)}
        uri = str(place) if isinstance(place, Path) else place.uri
        try:
            searcher = Searcher.open(uri, **options)
            while not done.is_set():
                searcher.refresh()
                assert len(searcher.search_vector({20: 1.0, 23: 1.0}, 10).hits) > 0
                searcher = Searcher.open(uri, verify=True, **options)
        except Exception as error:  # noqa: BLE001 - the test reports all
            errors.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.long
def test_readers_of_a_folder_see_no_error_while_all_old_versions_are_deleted(
    made: tuple[Path, list[str]], tmp_path: Path
) -> None:
    index, shas = made
    publish(index, shas[0])
    stock = tmp_path / "stock"
    shutil.copytree(index, stock)
    with readers(4, index, tmp_path) as errors:
        for turn in range(8):
            upload_version(stock, shas[1 + turn % 3], Store(str(index)))  # what retention may have deleted
            publish(index, shas[1 + turn % 3])
            old(index)
            collect(index)
    assert errors == []
    old(index)
    collect(index)
    assert len(versions(index)) == 1


@pytest.mark.long
def test_readers_of_an_object_store_see_no_error_while_all_old_versions_are_deleted(
    made: tuple[Path, list[str]], tmp_path: Path, s3_options: dict[str, str]
) -> None:
    index, shas = made
    store = Store(f"s3://lsr/retention-{tmp_path.name}", s3_options)
    publish(index, shas[0])
    upload_current(index, store)
    pin_publication(store, 1, by="ada", reason="audit")
    with readers(4, store, tmp_path / "cache") as errors:
        for turn in range(6):
            publish(index, shas[1 + turn % 3])
            upload_current(index, store)
            collect(store)
    assert errors == []
    assert publication_numbers(store) == [1, 7]
    kept = {Path(name).stem for name in store.names("versions")}
    assert kept == {shas[0], shas[3]}
    pinned = Searcher.open(index)  # complete in the store too
    check_files(store, pinned.version)


def test_missing_version_without_a_successor_is_an_error(made: tuple[Path, list[str]]) -> None:
    index, shas = made
    publish(index, shas[0])
    (index / "versions" / f"{shas[0]}.json").unlink()
    with pytest.raises(ArtifactError, match="is missing; publish another version"):
        Searcher.open(index)
