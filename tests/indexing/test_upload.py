"""A version goes to an object store or a folder: killed anywhere, it goes on; what is damaged never arrives."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lsr_prod import Searcher
from lsr_prod.errors import ArtefactError, DigestMismatchError, PublicationError, StorageError
from lsr_prod.formats.index import latest_publication
from lsr_prod.index_store import check_files, read_head
from lsr_prod.indexing import build, publish, rollback
from lsr_prod.indexing.rows import read_buckets
from lsr_prod.indexing.shard import build_shard
from lsr_prod.indexing.upload import upload_version
from lsr_prod.storage import Store
from tests.indexing.corpus import Doc, make_bundle, make_index, make_table
from tests.indexing.remote import bytes_of, files_of, make_versions, overwrite, send, with_takedown

KILLED = """
import json, os, sys
from pathlib import Path
from lsr_prod.indexing.upload import upload_version
from lsr_prod.storage import Store
index, version, uri, options, verb, prefix, last = sys.argv[1:]
verbs, calls = getattr(Store, verb), []
def killing(self, *arguments):
    calls.extend([1] * arguments[0].startswith(prefix))
    if len(calls) == int(last):
        os.kill(os.getpid(), 9)
    return verbs(self, *arguments)
setattr(Store, verb, killing)
upload_version(Path(index), version, Store(uri, json.loads(options)), connections=2)
"""


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/{tmp_path.name}", s3_options)


def test_only_what_is_not_there_is_sent(tmp_path: Path, remote: Store) -> None:
    first, second = make_versions(tmp_path, 2)
    done = upload_version(tmp_path, first.sha, remote)
    assert (done.bytes, done.files_there) == (bytes_of(tmp_path, first), 0)
    assert read_head(remote) is None
    check_files(remote, first)
    again = upload_version(tmp_path, first.sha, remote)
    assert (again.files, again.files_there, again.bytes_there) == (0, done.files, done.bytes)
    changed = with_takedown(tmp_path, first)
    assert upload_version(tmp_path, changed.sha, remote).files == 2
    assert upload_version(tmp_path, second.sha, remote).bytes == bytes_of(tmp_path, first, second) - done.bytes


@pytest.mark.parametrize(
    ("verb", "prefix", "last"),
    [("put_file_new", "", 1), ("put_file_new", "", 9), ("put_new", "bundles/", 1), ("put_new", "versions/", 1)],
)
def test_a_killed_upload_goes_on(
    tmp_path: Path, remote: Store, s3_options: dict[str, str], verb: str, prefix: str, last: int
) -> None:
    (version,) = make_versions(tmp_path, 1)
    files = len({file.sha256 for file in files_of(tmp_path, version)})
    arguments = [str(tmp_path), version.sha, remote.uri, json.dumps(s3_options), verb, prefix, str(last)]
    assert subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False).returncode == -9
    there = len(remote.names("files"))
    assert last - 2 <= there <= last if verb == "put_file_new" else there == files
    with pytest.raises(ArtefactError, match=rf"versions/{version.sha}\.json is missing"):
        publish(remote, version.sha)
    done = upload_version(tmp_path, version.sha, remote)
    assert (done.files_there, done.files) == (there, files - there)
    assert publish(remote, version.sha).number == 1


def test_a_damaged_file_never_arrives(tmp_path: Path, remote: Store) -> None:
    (version,) = make_versions(tmp_path, 1)
    file = next(file for file in files_of(tmp_path, version) if file.path.endswith("docs.arrow"))
    path = tmp_path / file.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DigestMismatchError, match=r"docs\.arrow"):
        upload_version(tmp_path, version.sha, remote)
    assert f"files/{file.sha256}" not in remote.names()
    assert remote.names("versions") == []
    path.unlink()
    with pytest.raises(ArtefactError, match=r"docs\.arrow is missing"):
        upload_version(tmp_path, version.sha, remote)


def test_an_object_of_another_size_is_named_and_not_replaced(tmp_path: Path, remote: Store) -> None:
    (version,) = make_versions(tmp_path, 1)
    send(tmp_path, version, remote)
    name = f"files/{version.shards[0].files[0].sha256}"
    overwrite(remote, name, b"short")
    with pytest.raises(ArtefactError, match=rf"{name} has 5 bytes.*delete it"):
        upload_version(tmp_path, version.sha, remote)
    assert remote.get(name) == b"short"


def test_two_builders_of_one_shard_do_not_mix_their_files(tmp_path: Path, remote: Store) -> None:
    corpus = {"a": Doc({1: 5}, "x"), "b": Doc({2: 7}, "y")}
    one, other = (make_index(tmp_path / name, corpus, vocabulary_size=4) for name in ("one", "other"))
    assert one.shards[0].sha == other.shards[0].sha
    assert one.sha != other.sha  # Tantivy names its segments by chance
    send(tmp_path / "one", one, remote)
    send(tmp_path / "other", other, remote)
    check_files(remote, one)
    check_files(remote, other)


def test_a_folder_becomes_an_index_that_readers_open(tmp_path: Path) -> None:
    (version,) = make_versions(tmp_path / "built", 1)
    changed = with_takedown(tmp_path / "built", version)
    target = Store(str(tmp_path / "published"))
    assert send(tmp_path / "built", changed, target) == latest_publication(tmp_path / "published")
    assert send(tmp_path / "built", changed, target).number == 1
    searcher = Searcher.open(tmp_path / "published", verify=True)
    assert searcher.version == changed
    file = tmp_path / "published" / files_of(tmp_path / "built", changed)[-1].path
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    upload_version(tmp_path / "built", version.sha, target)
    publish(target, version.sha)  # does not need the damaged list
    with pytest.raises(DigestMismatchError):
        publish(target, changed.sha)


def test_gates_look_at_the_remote_head_and_a_rollback_needs_no_local_index(tmp_path: Path, remote: Store) -> None:
    few = make_index(tmp_path, {"d": Doc({1: 1})}, vocabulary_size=40)
    many, _ = make_versions(tmp_path, 2)
    assert send(tmp_path, many, remote).number == 1
    upload_version(tmp_path, few.sha, remote)
    with pytest.raises(PublicationError, match="would vanish"):
        publish(remote, few.sha, max_shrink=0.5)
    assert publish(remote, few.sha).number == 2
    third = rollback(remote, 1)
    assert (third.number, third.version, third.note) == (3, many.sha, "rollback to 1")
    assert read_head(remote) == third
    with pytest.raises(PublicationError, match="no publication 9"):
        rollback(remote, 9)


def test_the_job_publishes_where_the_settings_say(
    tmp_path: Path, remote: Store, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lsr_prod.config import Deployment

    @contextmanager
    def no_ray(_: object) -> Iterator[None]:
        yield

    def here(plans, index):
        return [build_shard(plan, read_buckets(plan), index) for plan in plans]

    monkeypatch.setattr(build, "ray_session", no_ray)
    monkeypatch.setattr(build, "_build_shards", here)
    make_bundle(tmp_path / "bundle", [f"t{i}" for i in range(8)])
    table = make_table(tmp_path / "table", {"a": Doc({1: 5}, "x"), "b": Doc({2: 7}, "y")}, tmp_path / "bundle")

    def deployment(publish_to: str) -> Deployment:
        settings = {
            "table": table,
            "bundle": str(tmp_path / "bundle"),
            "output": str(tmp_path / "index"),
            "text_fields": ["text"],
            "publish_to": publish_to,
        }
        return Deployment.model_validate({"index": settings, "storage": {"options": s3_options}})

    with pytest.raises(StorageError, match="no-such-bucket"):
        build.build_index(deployment("s3://no-such-bucket/index"))
    assert not (tmp_path / "index").exists()
    summary = build.build_index(deployment(remote.uri))
    again = build.build_index(deployment(remote.uri))
    assert summary["publication"] == again["publication"] == 1
    head = read_head(remote)
    assert head is not None
    assert head.version == summary["version"]
    assert not (tmp_path / "index" / "publications").exists()
