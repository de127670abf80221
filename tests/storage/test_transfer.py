"""A fetched file has its name only if it is whole and has the sha256."""

import hashlib
import random
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.storage import Store, transfer
from lsr_prod.storage.formats.digests import FileDigest
from lsr_prod.storage.transfer import fetch_file
from tests.indexing.remote import overwrite

DATA = random.Random(1).randbytes(10_500)
FILE = FileDigest("docs.arrow", hashlib.sha256(DATA).hexdigest(), len(DATA))
NAME = f"files/{FILE.sha256}"


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(transfer, "_PIECE", 1000)
    (tmp_path / "files").mkdir()
    return Store(f"s3://lsr/{tmp_path.name}", s3_options)


def test_file_is_fetched_in_pieces(tmp_path: Path, remote: Store) -> None:
    remote.put_new(NAME, DATA)
    assert fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again") == len(DATA)
    (found,) = (tmp_path / "files").iterdir()
    assert (found.name, found.read_bytes(), found.stat().st_mode & 0o777) == (FILE.sha256, DATA, 0o444)


def test_empty_file_is_fetched(tmp_path: Path, remote: Store) -> None:
    empty = FileDigest("x", hashlib.sha256(b"").hexdigest(), 0)
    assert fetch_file(remote, empty, tmp_path / "files", remedy="upload it again") == 0
    assert (tmp_path / "files" / empty.sha256).read_bytes() == b""


@pytest.mark.parametrize("there", [0, 1, 1000, 4321, len(DATA)])
def test_bytes_of_an_earlier_attempt_are_used(tmp_path: Path, remote: Store, there: int) -> None:
    remote.put_new(NAME, DATA)
    (tmp_path / "files" / f"{FILE.sha256}.part").write_bytes(DATA[:there])
    assert fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again") == len(DATA) - there
    assert (tmp_path / "files" / FILE.sha256).read_bytes() == DATA


@pytest.mark.parametrize("begun", [b"x" * 100, DATA + b"x", bytes(len(DATA))])
def test_damaged_partial_file_is_fetched_again(tmp_path: Path, remote: Store, begun: bytes) -> None:
    remote.put_new(NAME, DATA)
    (tmp_path / "files" / f"{FILE.sha256}.part").write_bytes(begun)
    assert fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again") == len(DATA)
    assert (tmp_path / "files" / FILE.sha256).read_bytes() == DATA


@pytest.mark.parametrize(
    "data",
    [b"", DATA[:-1], DATA[:5000], b"\1" + DATA[1:], DATA[:-1] + b"\1", bytes(len(DATA)), DATA[:5000] + bytes(9000)],
)
def test_object_with_other_content_raises_and_leaves_nothing(tmp_path: Path, remote: Store, data: bytes) -> None:
    remote.put_new(NAME, data)
    for begun in (0, 2000, 7000):
        (tmp_path / "files" / f"{FILE.sha256}.part").write_bytes(data[:begun])
        with pytest.raises(DigestMismatchError, match=r"docs\.arrow\) has another size or sha256.*delete it"):
            fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again")
        assert list((tmp_path / "files").iterdir()) == []
    overwrite(remote, NAME, DATA)
    assert fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again") == len(DATA)


def test_missing_object_raises(tmp_path: Path, remote: Store) -> None:
    with pytest.raises(ArtifactError, match=r"docs\.arrow\) is missing"):
        fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again")


def test_bytes_fetched_before_a_service_failure_are_kept(
    tmp_path: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.put_new(NAME, DATA)
    read = Store.read_range

    def fail_late(self: Store, name: str, start: int, length: int) -> bytes:
        if start >= 3000:
            raise StorageError("the service is away")
        return read(self, name, start, length)

    monkeypatch.setattr(Store, "read_range", fail_late)
    with pytest.raises(StorageError, match="away"):
        fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again")
    monkeypatch.setattr(Store, "read_range", read)
    assert fetch_file(remote, FILE, tmp_path / "files", remedy="upload it again") == len(DATA) - 3000
