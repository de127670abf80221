"""Upload of versions to object stores and folders: resumes after kills, and never uploads damaged files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.storage import Store
from lsr_prod.storage.index_versions import check_files, read_version, upload_version
from lsr_prod.storage.publications import find_current_publication
from tests.indexing.corpus import Doc, make_index
from tests.indexing.remote import bytes_of, files_of, make_versions, overwrite, send, with_takedown

KILLED = """
import json, os, sys
from pathlib import Path
from lsr_prod.storage.index_versions import upload_version
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


def test_upload_sends_only_missing_files(tmp_path: Path, remote: Store) -> None:
    first, second = make_versions(tmp_path, 2)
    done = upload_version(tmp_path, first.sha, remote)
    assert (done.bytes, done.files_there) == (bytes_of(tmp_path, first), 0)
    assert find_current_publication(remote) is None
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
def test_killed_upload_resumes(
    tmp_path: Path, remote: Store, s3_options: dict[str, str], verb: str, prefix: str, last: int
) -> None:
    (version,) = make_versions(tmp_path, 1)
    files = len({file.sha256 for file in files_of(tmp_path, version)})
    arguments = [str(tmp_path), version.sha, remote.uri, json.dumps(s3_options), verb, prefix, str(last)]
    assert subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False).returncode == -9
    there = len(remote.names("files"))
    assert last - 2 <= there <= last if verb == "put_file_new" else there == files
    assert remote.get(f"versions/{version.sha}.json") is None
    done = upload_version(tmp_path, version.sha, remote)
    assert (done.files_there, done.files) == (there, files - there)
    check_files(remote, read_version(remote, version.sha))


def test_damaged_file_is_not_uploaded(tmp_path: Path, remote: Store) -> None:
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
    with pytest.raises(ArtifactError, match=r"docs\.arrow is missing"):
        upload_version(tmp_path, version.sha, remote)


def test_object_of_another_size_raises_and_is_not_replaced(tmp_path: Path, remote: Store) -> None:
    (version,) = make_versions(tmp_path, 1)
    send(tmp_path, version, remote)
    name = f"files/{version.shards[0].files[0].sha256}"
    overwrite(remote, name, b"short")
    with pytest.raises(ArtifactError, match=rf"{name} has 5 bytes.*delete it"):
        upload_version(tmp_path, version.sha, remote)
    assert remote.get(name) == b"short"


def test_builds_of_one_shard_do_not_mix_their_files(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = {"a": Doc({1: 5}, "x"), "b": Doc({2: 7}, "y")}
    one = make_index(tmp_path / "one", corpus, vocabulary_size=4)
    # Another release may write other bytes.
    monkeypatch.setattr("lsr_prod.indexing.segments.canonical_json", lambda value: canonical_json(value) + b" ")
    other = make_index(tmp_path / "other", corpus, vocabulary_size=4)
    assert one.shards[0].sha == other.shards[0].sha
    assert one.sha != other.sha
    upload_version(tmp_path / "one", one.sha, remote)
    upload_version(tmp_path / "other", other.sha, remote)
    check_files(remote, one)
    check_files(remote, other)
