import errno
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lsr_prod.errors import ConfigError, DigestMismatchError, StorageError
from lsr_prod.storage import ObjectChangedError, Store, is_remote, require_exists, store_digest
from lsr_prod.storage.formats.digests import digest_path
from lsr_prod.storage.remote import PART_BYTES, store_counts
from tests.objectstore.endpoint import GIVEN


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(str(tmp_path / "store"))
    return Store(f"s3://lsr/{tmp_path.name}", request.getfixturevalue("s3_options"))


def test_object_is_created_once_and_never_replaced(store: Store) -> None:
    assert store.get("a/b.json") is None
    assert store.size("a/b.json") is None
    assert store.put_new("a/b.json", b"first")
    assert not store.put_new("a/b.json", b"second")
    assert store.get("a/b.json") == b"first"
    assert store.size("a/b.json") == 5
    assert store.names() == ["a/b.json"]
    assert store.child("a").names() == ["b.json"]


def test_one_of_many_writers_creates_the_object(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.put_new("epoch", str(i).encode()), range(16)))
    assert sum(won) == 1
    assert store.get("epoch") == str(won.index(True)).encode()
    assert store.names() == ["epoch"]


def test_store_digest_is_sha256_of_the_content(store: Store, tmp_path: Path) -> None:
    (tmp_path / "same").write_bytes(b"content")
    store.put_new("x", b"content")
    assert store_digest(store, "x") == digest_path(tmp_path / "same")
    with pytest.raises(FileNotFoundError):
        store_digest(store, "y")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x"])
def test_name_outside_the_folder_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leaves its folder"):
        Store(str(tmp_path)).put_new(name, b"")


def test_killed_writer_leaves_no_object(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom lsr_prod.storage import Store\n"
        "os.link = lambda *_: os.kill(os.getpid(), 9)\n"
        "Store(sys.argv[1]).put_new('x', b'half')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    store = Store(str(tmp_path))
    assert store.get("x") is None
    assert store.put_new("x", b"whole")


def test_setting_that_names_nothing_raises(tmp_path: Path) -> None:
    require_exists("index.table", str(tmp_path))
    with pytest.raises(ConfigError, match=r"index\.table: there is nothing at"):
        require_exists("index.table", str(tmp_path / "absent"))


def test_remote_setting_that_names_nothing_raises(s3_options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="there is nothing at s3://lsr/absent"):
        require_exists("index.table", "s3://lsr/absent", s3_options)


def test_delta_options_are_for_remote_stores_only() -> None:
    assert is_remote("s3://b/x")
    assert Store("s3://b/x/", {"aws_region": "r"}).delta_options == {"AWS_REGION": "r"}
    assert Store("s3://b/x/").location == "s3://b/x"
    assert Store("x", {"aws_region": "r"}).delta_options is None
    assert Store("x").location == str(Path("x").absolute())


def test_listing_has_sizes_times_and_tags(store: Store) -> None:
    before = time.time()
    for name in ("b/2", "a", "b/c/1"):
        store.put_new(name, name.encode())
    entries = store.entries()
    assert [(entry.name, entry.size) for entry in entries] == [("a", 1), ("b/2", 3), ("b/c/1", 5)]
    assert all(before - 2 <= entry.modified <= time.time() + 2 for entry in entries)
    assert [entry.name for entry in store.entries("b")] == store.names("b") == ["b/2", "b/c/1"]
    assert [store.entry(entry.name) for entry in entries] == entries
    assert store.entry("b") is store.entry("none") is None
    assert (entries[0].etag is None) == (not is_remote(store.uri))
    assert store.entries("absent") == []


def test_object_is_created_or_replaced(store: Store) -> None:
    for content in (b"first", b"second"):
        store.put("a/b.json", content)
        assert store.get("a/b.json") == content
    assert store.names() == ["a/b.json"]


def test_deleted_object_can_be_created_again(store: Store) -> None:
    store.put_new("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    assert store.names() == []
    assert store.put_new("a/b", b"2")


def test_many_objects_are_deleted_in_few_requests(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.storage.stores._DELETED_AT_ONCE", 4)
    names = ["a/1", "a/2", "a/none", "a/3", "a/b/4", "a/5"]
    for name in (*names, "c"):
        store.put_new(name, b"1")
    store.delete("a/none")
    before = store_counts()
    store.delete_all(names)
    assert store.names() == ["c"]
    if is_remote(store.uri):
        assert (store_counts() - before).requests["delete"] == 2
    store.delete_all([])


def test_touched_object_is_new_and_unchanged(tmp_path: Path, s3_options: dict[str, str]) -> None:
    store = Store(str(tmp_path))
    store.put_new("x", b"content")
    os.utime(tmp_path / "x", (1, 1))
    store.touch("x")
    assert store.entries()[0].modified > time.time() - 5
    remote = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    remote.put_new("x", b"content")
    remote.touch("x")
    assert (store.get("x"), remote.get("x")) == (b"content", b"content")
    with pytest.raises(FileNotFoundError):
        store.touch("y")
    with pytest.raises(FileNotFoundError):
        remote.touch("y")


def test_failing_disk_or_service_raises_with_the_place(
    tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(full))
    local = Store(str(tmp_path))
    with pytest.raises(
        StorageError, match=rf"{tmp_path}/x cannot be written .*No space left on device.*free space.*run again"
    ):
        local.put_new("x", b"1")
    monkeypatch.undo()
    assert local.names() == []  # no draft is left
    absent = Store("s3://no-such-bucket/folder", s3_options)
    with pytest.raises(StorageError, match="s3://no-such-bucket/folder/x could not be written"):
        absent.put_new("x", b"1")
    with pytest.raises(OSError, match="could not be listed"):
        absent.entries()
    assert isinstance(pickle.loads(pickle.dumps(StorageError("one sentence"))), OSError)


@pytest.mark.parametrize("size", [0, 5, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 12345])
def test_put_file_creates_the_object_once_and_checks_the_sha256(store: Store, tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(random.Random(size).randbytes(size))
    sha = digest_path(source)
    with pytest.raises(DigestMismatchError, match="source differs"):
        store.put_file_new("a/x", source, "0" * 64)
    assert store.names() == []
    assert store.put_file_new("a/x", source, sha)
    assert store_digest(store, "a/x") == sha
    source.write_bytes(b"other")
    assert not store.put_file_new("a/x", source, digest_path(source))
    assert store_digest(store, "a/x") == sha
    with pytest.raises(StorageError, match="could not be written"):
        store.put_file_new("a/y", tmp_path / "absent", sha)
    assert store.names() == ["a/x"]


class _Conflicts(BaseHTTPRequestHandler):
    """A service that refuses the first creations with 409, as S3 does if a deletion of the object is under way."""

    refusals = 0
    exists = False
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        kind = type(self)
        self.rfile.read(int(self.headers["Content-Length"]))
        status = 409 if kind.refusals else 412 if kind.exists else 200
        kind.exists |= status == 200
        kind.refusals = max(kind.refusals - 1, 0)
        self._answer(status)

    def do_HEAD(self) -> None:
        self._answer(200 if self.exists else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        headers = {"ETag": '"1"', "Last-Modified": "Wed, 25 Nov 2026 12:00:00 GMT", "Content-Length": "0"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_creation_that_is_refused_without_an_object_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Conflicts) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_address[1]}"
            store = Store("s3://lsr/conflicts", {"aws_endpoint": endpoint, "allow_http": "true"})
            monkeypatch.setattr(_Conflicts, "refusals", 2)
            assert store.put_new("x", b"")
            assert not store.put_new("x", b"")
            monkeypatch.setattr(_Conflicts, "exists", False)
            monkeypatch.setattr(_Conflicts, "refusals", 1000)
            monkeypatch.setattr("lsr_prod.storage.stores._CONFLICTS", 2)
            with pytest.raises(StorageError, match="conflicts/x could not be written: the service refused it 2 times"):
                store.put_new("x", b"")
        finally:
            server.shutdown()


def test_read_range_of_an_object(store: Store) -> None:
    store.put_new("x", b"0123456789")
    assert store.read_range("x", 3, 4) == b"3456"
    assert store.read_range("x", 8, 4) == b"89"
    with pytest.raises(FileNotFoundError):
        store.read_range("y", 0, 1)


def test_object_replaced_between_two_pieces_of_one_read_raises(tmp_path: Path, s3_options: dict[str, str]) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    store.put_new("x", b"a" * 3_000_000)
    with store.open_reader("x") as first, store.open_reader("x") as last:
        assert first.read(1_000_000) == b"a" * 1_000_000
        store.delete("x")
        store.put_new("x", b"b" * 3_000_000)
        with pytest.raises(ObjectChangedError, match="x no longer has the ETag"):
            first.read(1_500_000)
        last.seek(-8, os.SEEK_END)
        with pytest.raises(ObjectChangedError):
            last.read()


class _WithoutConditions(BaseHTTPRequestHandler):
    """Forwards reads to an endpoint without the condition, as services do that ignore it."""

    endpoint = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() != "if-match"}
        request = urllib.request.Request(self.endpoint + self.path, headers=headers, method=self.command)
        with urllib.request.urlopen(request) as answer:
            content = answer.read()
            self.send_response(answer.status)
            for name in ("ETag", "Last-Modified", "Content-Length", "Content-Range"):
                if answer.headers[name]:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.skipif(GIVEN in os.environ, reason="a server that checks signatures refuses such a request")
def test_replaced_object_of_a_service_that_ignores_conditions_raises(
    tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    store.put_new("x", b"a" * 3_000_000)
    monkeypatch.setattr(_WithoutConditions, "endpoint", s3_options["aws_endpoint"])
    with ThreadingHTTPServer(("127.0.0.1", 0), _WithoutConditions) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_address[1]}"
            with Store(store.uri, s3_options | {"aws_endpoint": endpoint}).open_reader("x") as reader:
                assert reader.read(1_000_000) == b"a" * 1_000_000
                store.delete("x")
                store.put_new("x", b"b" * 3_000_000)
                with pytest.raises(ObjectChangedError, match="x no longer has the ETag"):
                    reader.read(1_500_000)
        finally:
            server.shutdown()


def test_reader_of_a_version_refuses_other_versions(tmp_path: Path, s3_options: dict[str, str]) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    store.put_new("x", b"a")
    etag = store.etag("x")
    with store.open_reader("x", etag=etag) as reader:
        assert (reader.read(), reader.tell(), reader.seek(0), reader.read(9)) == (b"a", 1, 0, b"a")
    store.delete("x")
    store.put_new("x", b"")
    with pytest.raises(ObjectChangedError, match=etag):
        store.open_reader("x", etag=etag)
    store.delete("x")
    with pytest.raises(FileNotFoundError):
        store.open_reader("x", etag=etag)
