"""Upload of publications to the target that readers open, and adoption by other machines."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.errors import ArtifactError, DigestMismatchError, PublicationError, StorageError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.publication import Publication
from lsr_prod.indexing import build_index, collect_garbage, rollback
from lsr_prod.indexing.publish import publish
from lsr_prod.jobs import takedown
from lsr_prod.storage import Store, drafts, index_upload
from lsr_prod.storage.index_cache import fetch_current_version
from lsr_prod.storage.index_upload import adopt_current, upload_current
from lsr_prod.storage.index_versions import check_files, read_version, upload_version
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage.publications import current_publication, find_current_publication, read_publication
from tests.indexing.corpus import Doc, make_bundle, make_index, make_table
from tests.indexing.remote import files_of, make_versions, send, with_takedown

MIRROR = """
import json, sys
from pathlib import Path
from lsr_prod.storage.index_upload import upload_current
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage import Store
index, uri, options = sys.argv[1:]
print(upload_current(Path(index), Store(uri, json.loads(options))).number)
"""
ADOPT_KILLED = """
import json, os, sys
from pathlib import Path
from lsr_prod.storage import drafts, index_upload
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage import Store
index, uri, options, verb, last = sys.argv[1:]
owner = {"rename": Path, "sync_tree": drafts, "create_file": index_upload, "create_publication": index_upload}[verb]
real, calls = getattr(owner, verb), []
def killing(*arguments, **named):
    calls.append(1)
    if len(calls) == int(last):
        os.kill(os.getpid(), 9)
    return real(*arguments, **named)
setattr(owner, verb, killing)
index_upload.adopt_current(Path(index), Store(uri, json.loads(options)))
"""


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/{tmp_path.name}", s3_options)


def test_upload_keeps_the_publication_numbers(tmp_path: Path, remote: Store) -> None:
    with pytest.raises(PublicationError, match="has no publication"):
        upload_current(tmp_path, remote)
    versions = make_versions(tmp_path, 2)
    assert upload_current(tmp_path, remote) == current_publication(tmp_path) == find_current_publication(remote)
    assert upload_current(tmp_path, remote).number == 2
    third = rollback(tmp_path, 1)
    assert (third.number, third.version) == (3, versions[0].sha)
    assert upload_current(tmp_path, remote) == third == find_current_publication(remote)
    assert remote.names("publications") == ["publications/000002.json", "publications/000003.json"]
    for version in versions:
        check_files(remote, version)


def test_garbage_of_the_target_is_collected_and_a_folder_far_behind_is_refused(tmp_path: Path, remote: Store) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make_versions(one, 1)
    upload_current(one, remote)
    adopt_current(other, remote)
    (newest,) = make_versions(one, 3)[-1:]
    third = upload_current(one, remote)
    collect_garbage(remote, keep=1, age_s=-60)
    assert find_current_publication(remote) == third
    check_files(remote, newest)
    assert remote.names("publications") == [f"publications/{third.number:06d}.json"]
    assert remote.names("versions") == [f"versions/{newest.sha}.json"]
    with pytest.raises(PublicationError, match="or the folder is far behind"):
        adopt_current(other, remote)
    shutil.rmtree(other)
    assert adopt_current(other, remote) == third
    collect_garbage(one, keep=1, age_s=-60)
    assert upload_current(one, remote) == third


def test_upload_to_a_folder_makes_an_index_that_readers_open(tmp_path: Path) -> None:
    (version,) = make_versions(tmp_path / "built", 1)
    target = Store(str(tmp_path / "published"))
    first = upload_current(tmp_path / "built", target)
    assert first == current_publication(tmp_path / "published")
    assert Searcher.open(tmp_path / "published", verify=True).version == version
    changed = with_takedown(tmp_path / "built", version)
    upload_version(tmp_path / "built", changed.sha, target)
    file = tmp_path / "published" / files_of(tmp_path / "built", changed)[-1].path
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DigestMismatchError):
        send(tmp_path / "built", changed, target)
    assert find_current_publication(target) == first
    file.unlink()
    assert upload_current(tmp_path / "built", target).version == changed.sha
    assert Searcher.open(tmp_path / "published", verify=True).version == changed


def test_publication_that_changes_during_comparison_is_compared_again(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = make_versions(tmp_path, 2)
    real = index_upload.current_publication

    def before_others(index: Path) -> Publication:
        found = real(index)
        monkeypatch.setattr(index_upload, "current_publication", real)
        publish(index, versions[0].sha)
        upload_current(index, remote)
        return found

    monkeypatch.setattr(index_upload, "current_publication", before_others)
    assert upload_current(tmp_path, remote).number == 3
    assert remote.names("publications") == ["publications/000003.json"]


def test_concurrent_uploads_end_in_one_state(tmp_path: Path, remote: Store, s3_options: dict[str, str]) -> None:
    versions = make_versions(tmp_path, 3)
    command = [sys.executable, "-c", MIRROR, str(tmp_path), remote.uri, json.dumps(s3_options)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    publish(tmp_path, versions[0].sha)
    numbers = {int(racer.communicate(timeout=60)[0]) for racer in racers}
    assert numbers <= {3, 4}
    assert upload_current(tmp_path, remote).number == 4
    assert find_current_publication(remote) == current_publication(tmp_path)


def test_slow_upload_never_republishes_an_older_version(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = make_versions(tmp_path, 2)
    real = index_upload.upload_version

    def slow(*arguments: object) -> object:
        monkeypatch.setattr(index_upload, "upload_version", real)
        publish(tmp_path, versions[0].sha)
        upload_current(tmp_path, remote)  # a faster upload
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(index_upload, "upload_version", slow)
    assert upload_current(tmp_path, remote).number == 3
    head = find_current_publication(remote)
    assert head is not None
    assert (head.number, head.version) == (3, versions[0].sha)


def test_target_with_another_index_raises(tmp_path: Path, remote: Store) -> None:
    make_versions(tmp_path / "one", 2)
    make_versions(tmp_path / "other", 3, shards=3)
    upload_current(tmp_path / "one", remote)
    before = find_current_publication(remote)
    for refused in (upload_current, adopt_current):
        with pytest.raises(PublicationError, match="two indexes are published there"):
            refused(tmp_path / "other", remote)
    assert find_current_publication(remote) == before
    for path in (tmp_path / "other" / "publications").iterdir():
        path.unlink()
    assert adopt_current(tmp_path / "other", remote) == before == current_publication(tmp_path / "other")
    assert upload_current(tmp_path / "other", remote) == before


def test_another_machine_adopts_the_current_publication(tmp_path: Path, remote: Store) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert adopt_current(one, remote) is None
    (version,) = make_versions(one, 1)
    changed = with_takedown(one, version)
    second = send(one, changed, remote)
    assert adopt_current(one, remote) == second
    assert adopt_current(other, remote) == second
    names = {path.relative_to(other).as_posix() for path in other.rglob("*") if path.is_file()}
    assert {file.path for file in files_of(one, changed)} < names
    assert not (other / ".adopted").exists()
    assert Searcher.open(other, verify=True).version == read_version(other, second.version) == changed
    newer = replace(changed, table_version=7)
    Store(str(other)).put_new(f"versions/{newer.sha}.json", canonical_json(newer.to_json()))
    third = send(other, newer, remote)
    assert third.number == 3
    assert adopt_current(one, remote) == third
    assert [read_publication(Store(str(one)), number).number for number in (1, 2, 3)] == [1, 2, 3]
    assert upload_current(one, remote) == third


def test_publication_that_was_not_uploaded_is_never_dropped(tmp_path: Path, remote: Store) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make_versions(one, 2)
    upload_current(one, remote)
    adopt_current(other, remote)
    make_index(other, {"b": Doc({1: 3})}, vocabulary_size=40)  # 3, not uploaded: the machine stopped
    for i in range(2):  # 3 and 4; only 4 is uploaded
        make_index(one, {f"c{i}": Doc({1: 3})}, vocabulary_size=40)
    fourth = upload_current(one, remote)
    for refused in (upload_current, adopt_current):
        with pytest.raises(PublicationError, match="delete the publications from 3 on"):
            refused(other, remote)
    (other / "publications" / "000003.json").unlink()
    assert adopt_current(other, remote) == fourth


def test_adopt_from_a_local_target(tmp_path: Path) -> None:
    target = Store(str(tmp_path / "published"))
    (version,) = make_versions(tmp_path / "one", 1)
    first = upload_current(tmp_path / "one", target)
    assert adopt_current(tmp_path / "other", target) == first
    assert Searcher.open(tmp_path / "other", verify=True).version == version


@pytest.mark.parametrize(
    ("verb", "last"), [("rename", 5), ("sync_tree", 2), ("create_file", 1), ("create_publication", 1)]
)
def test_killed_adoption_resumes(
    tmp_path: Path, remote: Store, s3_options: dict[str, str], verb: str, last: int
) -> None:
    (version,) = make_versions(tmp_path / "one", 1)
    first = upload_current(tmp_path / "one", remote)
    other = tmp_path / "other"
    arguments = [str(other), remote.uri, json.dumps(s3_options), verb, str(last)]
    assert subprocess.run([sys.executable, "-c", ADOPT_KILLED, *arguments], check=False).returncode == -9
    assert not (other / "publications").exists()
    assert adopt_current(other, remote) == first
    assert Searcher.open(other, verify=True).version == version


def test_concurrent_adoptions_end_in_one_state(tmp_path: Path, remote: Store, s3_options: dict[str, str]) -> None:
    (version,) = make_versions(tmp_path / "one", 1)
    first = upload_current(tmp_path / "one", remote)
    other = tmp_path / "other"
    arguments = [str(other), remote.uri, json.dumps(s3_options), "create_file", "1000"]
    racers = [subprocess.Popen([sys.executable, "-c", ADOPT_KILLED, *arguments]) for _ in range(3)]
    assert [racer.wait(timeout=60) for racer in racers] == [0, 0, 0]
    assert current_publication(other) == first
    assert Searcher.open(other, verify=True).version == version
    assert not (other / ".adopted").exists()


def test_adopting_a_shard_built_with_other_bytes_raises(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = {"a": Doc({1: 5}, "x"), "b": Doc({2: 7}, "y")}
    one = make_index(tmp_path / "one", corpus, vocabulary_size=4)
    monkeypatch.setattr("lsr_prod.indexing.segments.canonical_json", lambda value: canonical_json(value) + b" ")
    make_index(tmp_path / "other", corpus, vocabulary_size=4)
    first = upload_current(tmp_path / "one", remote)
    (tmp_path / "other" / "publications" / "000001.json").unlink()
    shard = tmp_path / "other" / "shards" / one.shards[0].sha
    with pytest.raises(PublicationError, match=rf"{shard} was built here too"):
        adopt_current(tmp_path / "other", remote)
    shard.rename(tmp_path / "aside")
    assert adopt_current(tmp_path / "other", remote) == first


def test_damaged_version_is_not_uploaded(tmp_path: Path, remote: Store) -> None:
    (version,) = make_versions(tmp_path, 1)
    (tmp_path / files_of(tmp_path, version)[0].path).unlink()
    with pytest.raises(ArtifactError, match="is missing"):
        upload_current(tmp_path, remote)
    assert find_current_publication(remote) is None


def test_jobs_publish_and_take_down_at_publish_to(tmp_path: Path, remote: Store, s3_options: dict[str, str]) -> None:
    make_bundle(tmp_path / "bundle", [f"t{i}" for i in range(8)])
    corpus = {f"d{i}": Doc({1: 5}, f"text {i}") for i in range(20)}
    table = make_table(tmp_path / "table", corpus, tmp_path / "bundle")

    def settings(publish_to: str) -> dict[str, dict[str, object]]:
        index = {
            "table": table,
            "bundle": str(tmp_path / "bundle"),
            "output": str(tmp_path / "index"),
            "text_fields": ["text"],
            "publish_to": publish_to,
        }
        return {"index": index, "storage": {"options": s3_options}}

    with pytest.raises(StorageError, match="no-such-bucket"):
        build_index(Deployment.model_validate(settings("s3://no-such-bucket/index")))
    assert not (tmp_path / "index").exists()
    deployment = Deployment.model_validate(settings(remote.uri))
    first = build_index(deployment)
    assert (first.publication, first.mode) == (1, "full")
    assert build_index(deployment).publication == 1
    cache = NodeCache(tmp_path / "cache")
    place, publication = fetch_current_version(cache, remote)
    assert publication == current_publication(tmp_path / "index")
    assert read_version(place, publication.version).documents == 20

    (tmp_path / "deployment.yaml").write_text(json.dumps(settings(remote.uri)))
    shutil.rmtree(tmp_path / "index")  # another machine
    assert takedown.main(["--config", str(tmp_path / "deployment.yaml"), "--id", "d3"]) == 0
    before = cache.statistics
    place, publication = fetch_current_version(cache, remote)
    assert publication.number == 2
    version = read_version(place, publication.version)
    assert version.documents == 19
    assert (place / "takedowns").is_dir()
    assert (place / "tombstones").is_dir()
    assert cache.statistics.files_fetched - before.files_fetched == 2

    shutil.rmtree(tmp_path / "index")
    again = build_index(deployment)
    assert (again.mode, again.publication, again.documents) == ("unchanged", 2, 19)
    assert rollback(tmp_path / "index", 2).version == version.sha
    cache.close()


def test_full_disk_while_a_publication_is_cached_raises_storage_error(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_versions(tmp_path / "one", 1)
    upload_current(tmp_path / "one", remote)
    cache = NodeCache(tmp_path / "cache")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lsr_prod.storage.index_cache.create_file", full)
    with pytest.raises(StorageError, match="No space left"):
        fetch_current_version(cache, remote)


def test_adoption_compares_a_shard_that_another_build_sealed_meanwhile(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_versions(tmp_path / "one", 1)
    upload_current(tmp_path / "one", remote)

    def sealed_by_another(draft: drafts.Draft) -> bool:
        shutil.copytree(draft.folder, draft.target)
        for path in draft.target.glob("*.json"):
            path.write_bytes(b"{}")
        return False

    monkeypatch.setattr(drafts.Draft, "seal", sealed_by_another)
    with pytest.raises(PublicationError, match="other bytes"):
        adopt_current(tmp_path / "other", remote)
