"""Versions in the node cache are whole or absent and within the quota, under kills and concurrent processes."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lsr_prod import Searcher
from lsr_prod.errors import ArtifactError, DigestMismatchError, MissingExtraError, PublicationError, StorageError
from lsr_prod.indexing import rollback
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json, digest_json, verify_files
from lsr_prod.storage.formats.index_format import IndexVersion, Publication
from lsr_prod.storage.publications import current_publication
from tests.indexing.remote import bytes_of, files_of, make_versions, overwrite, send, upload_current, with_takedown
from tests.storage.node_caches import CountedCache as NodeCache
from tests.storage.node_caches import fetch_current_version

PRELUDE = """
import json, os, sys, time
from pathlib import Path
from lsr_prod.storage import Store, cache_folder, drafts, transfer
from tests.storage.node_caches import CountedCache as NodeCache
from tests.storage.node_caches import fetch_current_version
transfer._PIECE = 1000
uri, options, folder, *arguments = sys.argv[1:]
options = json.loads(options)
"""
KILLED = """
import random
place, verb, last = arguments
owners = {"store": Store, "cache": cache_folder, "drafts": drafts, "shutil": drafts.shutil, "os": os, "path": Path}
owner = owners[place]
real, calls = getattr(owner, verb), []
def killing(*arguments, **named):
    calls.append(1)
    if len(calls) == int(last):
        os.kill(os.getpid(), 9)
    return real(*arguments, **named)
setattr(owner, verb, killing)
fetch_current_version(NodeCache(folder, int(os.environ["QUOTA"]), connections=2), Store(uri, options))
"""
FETCH_AND_SEARCH = """
from lsr_prod import Searcher
kept = NodeCache(folder)
index, publication = fetch_current_version(kept, Store(uri, options))
hits = Searcher.open(index, verify=True).search_vector({0: 1.0}).hits
print(json.dumps([kept.misses, kept.bytes_fetched, [hit.doc_id for hit in hits]]))
"""
FETCH_AND_WAIT = """
print(fetch_current_version(NodeCache(folder), Store(uri, options))[0], flush=True)
time.sleep(600)
"""
FETCH_MANY = """
from lsr_prod import Searcher
from lsr_prod.errors import StorageError
kept = NodeCache(folder, int(arguments[0]))
done = refused = 0
while done < 9:
    for one in (uri + "/0", uri + "/1", uri + "/2"):
        try:
            index, publication = fetch_current_version(kept, Store(one, options))
        except StorageError as error:
            assert "quota" in str(error), error
            refused += 1
            continue
        searcher = Searcher.open(index, verify=True)
        assert searcher.publication == publication
        assert searcher.search_vector({int(one[-1]): 1.0}).matched == 40
        del searcher
        kept.release(index)
        done += 1
print(json.dumps([refused, kept.artifacts_evicted]))
"""


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/{tmp_path.name}", s3_options)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def start(code: str, remote: Store, folder: Path, *arguments: object, quota: int = 1 << 40) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, remote.uri, json.dumps(remote.options), str(folder)]
    environment = {**os.environ, "QUOTA": str(quota)}
    return subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def check_whole(folder: Path, index: Path, *versions: IndexVersion) -> None:
    """The cache holds these versions, every file right, and no other content."""
    places = sorted(path for path in folder.glob("artifacts/*/*") if path.is_dir())
    assert [place.name for place in places] == sorted(version.sha for version in versions)
    for place in places:
        version = next(version for version in versions if version.sha == place.name)
        verify_files(place, files_of(index, version))
    names = {file.sha256 for version in versions for file in files_of(index, version)}
    assert {path.name for path in (folder / "files").iterdir()} == names


def test_fetched_version_equals_the_uploaded_index(index: Path, folder: Path, remote: Store) -> None:
    (version,) = make_versions(index, 1)
    changed = with_takedown(index, version)
    publication = send(index, changed, remote)
    cache = NodeCache(folder)
    place, found = fetch_current_version(cache, remote)
    assert found == publication == current_publication(remote) == current_publication(place)
    named = {f"publications/{publication.number:06d}.json", f"versions/{changed.sha}.json"}
    history = {name for name in files_in(index) if name.startswith(("publications", "versions"))}
    assert files_in(place) - named == files_in(index) - history
    for name in files_in(place) - named:
        assert (place / name).read_bytes() == (index / name).read_bytes()
    here, there = Searcher.open(index), Searcher.open(place, verify=True)
    assert there.version == changed
    assert there.search_vector({0: 1.0, 21: 2.0}).hits == here.search_vector({0: 1.0, 21: 2.0}).hits
    assert (cache.misses, cache.hits, cache.artifacts) == (1, 0, 1)
    assert cache.bytes == cache.bytes_fetched == bytes_of(index, changed)
    assert fetch_current_version(NodeCache(folder), remote) == (place, found)
    cache.close()


@pytest.mark.long
def test_new_version_fetches_only_new_files_and_rollback_nothing(index: Path, folder: Path, remote: Store) -> None:
    first, second = make_versions(index, 2)
    send(index, first, remote)
    cache = NodeCache(folder)
    old, _ = fetch_current_version(cache, remote)
    send(index, second, remote)
    new, _ = fetch_current_version(cache, remote)
    assert cache.bytes_fetched == bytes_of(index, first, second)
    assert bytes_of(index, first, second) < bytes_of(index, first) + bytes_of(index, second)
    third = rollback(index, 3)
    upload_current(index, remote)
    assert current_publication(remote) == third
    again, found = fetch_current_version(cache, remote)
    assert (again, found) == (old, third)
    assert Searcher.open(again).publication == third
    assert cache.bytes_fetched == bytes_of(index, first, second)
    assert (cache.hits, cache.misses) == (1, 2)
    check_whole(folder, index, first, second)
    assert Searcher.open(new, verify=True).publication.number == 4
    cache.close()


def test_local_index_is_not_copied(index: Path, folder: Path) -> None:
    make_versions(index, 2)
    cache = NodeCache(folder)
    assert fetch_current_version(cache, Store(str(index))) == (index, current_publication(index))
    cache.release(index)
    assert not folder.exists()
    with pytest.raises(PublicationError):
        fetch_current_version(cache, Store(str(folder)))


def test_fetch_without_publication_raises(folder: Path, remote: Store) -> None:
    with pytest.raises(PublicationError, match=r"has no publication.*lsr-prod index build"):
        fetch_current_version(NodeCache(folder), remote)
    assert not folder.exists()


def test_missing_obstore_raises_with_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingExtraError, match="obstore is not installed"):
        fetch_current_version(NodeCache(folder), Store("s3://elsewhere/index"))


@pytest.mark.parametrize(
    ("place", "verb", "last"),
    [
        ("store", "read_range", 40),
        ("path", "rename", 9),
        *(
            pytest.param(*place, marks=pytest.mark.long)
            for place in [
                ("store", "read_range", 1),
                ("path", "rename", 1),
                ("os", "link", 12),
                ("drafts", "sync_tree", 1),
                ("drafts", "create_file", 3),
                ("cache", "mark_used", 3),
            ]
        ),
    ],
)
def test_killed_fetch_resumes(index: Path, folder: Path, remote: Store, place: str, verb: str, last: int) -> None:
    (version,) = make_versions(index, 1)
    publication = send(index, version, remote)
    process = start(KILLED, remote, folder, place, verb, last)
    process.communicate(timeout=60)
    assert process.returncode == -9
    came = sum(path.stat().st_size for path in (folder / "files").glob("*"))
    cache = NodeCache(folder)
    assert fetch_current_version(cache, remote)[1] == publication
    assert cache.bytes_fetched == bytes_of(index, version) - came
    assert (came > 0) == ((verb, last) != ("read_range", 1))
    check_whole(folder, index, version)
    assert not [name for name in files_in(folder) if ".tmp" in name or ".part" in name]
    cache.close()


@pytest.mark.long
@pytest.mark.parametrize("verb", ["rename", "rmtree"])
def test_kill_during_eviction_leaves_no_partial_version(index: Path, folder: Path, remote: Store, verb: str) -> None:
    first, second = make_versions(index, 2)
    send(index, first, remote)
    cache = NodeCache(folder)
    cache.release(fetch_current_version(cache, remote)[0])
    send(index, second, remote)
    owner = "shutil" if verb == "rmtree" else "path"
    process = start(KILLED, remote, folder, owner, verb, 1, quota=bytes_of(index, second))
    process.communicate(timeout=60)
    assert process.returncode == -9
    small = NodeCache(folder, bytes_of(index, second))
    fetch_current_version(small, remote)
    check_whole(folder, index, second)
    small.close()


@pytest.mark.long
def test_use_ends_with_its_process(index: Path, folder: Path, remote: Store) -> None:
    first, second = make_versions(index, 2)
    send(index, first, remote)
    reader = start(FETCH_AND_WAIT, remote, folder)
    assert reader.stdout is not None
    place = Path(reader.stdout.readline().strip())
    assert place.name == first.sha
    send(index, second, remote)
    cache = NodeCache(folder, bytes_of(index, second))
    before = files_in(folder)
    with pytest.raises(StorageError, match="with the artifacts in use"):
        fetch_current_version(cache, remote)
    assert files_in(folder) - before <= {f"artifacts/{place.parent.name}/{second.sha}.use"}
    assert cache.bytes_fetched == 0
    os.kill(reader.pid, signal.SIGKILL)
    reader.communicate(timeout=10)
    fetch_current_version(cache, remote)
    check_whole(folder, index, second)
    cache.close()


@pytest.mark.long
def test_least_recently_used_version_is_evicted_first(index: Path, folder: Path, remote: Store) -> None:
    versions = make_versions(index, 3)
    cache = NodeCache(folder, bytes_of(index, *versions[:2]) + 3000)
    for version in (versions[0], versions[1], versions[0], versions[2]):
        if version is versions[2]:
            check_whole(folder, index, *versions[:2])
        send(index, version, remote)
        cache.release(fetch_current_version(cache, remote)[0])
    check_whole(folder, index, versions[0], versions[2])
    assert cache.artifacts_evicted == 1
    assert cache.bytes == bytes_of(index, versions[0], versions[2])


@pytest.mark.long
def test_version_that_cannot_fit_raises_before_any_fetch_or_eviction(
    index: Path, folder: Path, remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_versions(index, 2)
    send(index, first, remote)
    fetch_current_version(NodeCache(folder), remote)
    send(index, second, remote)
    small = NodeCache(folder, bytes_of(index, second) - 1)
    with pytest.raises(StorageError, match=rf"needs {bytes_of(index, second)} bytes.*raise the quota"):
        fetch_current_version(small, remote)
    check_whole(folder, index, first)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(StorageError, match="free the disk"):
        fetch_current_version(NodeCache(folder), remote)
    check_whole(folder, index, first)
    assert small.bytes_fetched == 0


def test_foreign_files_in_the_cache_are_kept(index: Path, folder: Path, remote: Store) -> None:
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "notes.txt").write_text("mine")
    (folder / "files" / ("0" * 64)).write_text("what no version has")
    send(index, make_versions(index, 1)[0], remote)
    fetch_current_version(NodeCache(folder), remote)
    assert (folder / "files" / "notes.txt").read_text() == "mine"
    assert not (folder / "files" / ("0" * 64)).exists()


@pytest.mark.long
def test_any_altered_object_raises(index: Path, folder: Path, remote: Store) -> None:
    (version,) = make_versions(index, 1, shards=1)
    send(index, version, remote)
    rng = random.Random(5)
    # Publications are not checked: they are not named by their content.
    for name in [*remote.names("bundles"), *remote.names("files"), *remote.names("versions")]:
        data = remote.get(name)
        assert data is not None
        changed = bytearray(data)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        overwrite(remote, name, bytes(changed))
        fresh = folder / name
        with pytest.raises(DigestMismatchError):
            fetch_current_version(NodeCache(fresh), remote)
        assert not list(fresh.glob("artifacts/*/*/"))
        assert not list(fresh.glob(f"{name}*"))
        overwrite(remote, name, data)
        cache = NodeCache(fresh)
        fetch_current_version(cache, remote)
        check_whole(fresh, index, version)
        cache.close()


class _FlipsBits(BaseHTTPRequestHandler):
    """Passes requests on to an S3 endpoint, and flips a bit in every answer whose path has ``flip`` in it."""

    endpoint = ""
    flip = "nothing"

    def do_GET(self) -> None:
        request = urllib.request.Request(self.endpoint + self.path, headers=dict(self.headers))
        try:
            with urllib.request.urlopen(request) as answer:
                status, found, body = answer.status, answer.headers, bytearray(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                status, found, body = error.code, error.headers, bytearray(error.read())
        if self.flip in self.path:
            body[len(body) // 2] ^= 4
        self.send_response(status)
        for name, value in found.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_bit_flipped_in_transfer_raises(index: Path, folder: Path, remote: Store) -> None:
    (version,) = make_versions(index, 1, shards=1)
    send(index, version, remote)
    docs = next(file for file in files_of(index, version) if file.path.endswith("docs.arrow"))
    handler = type("Handler", (_FlipsBits,), {"endpoint": remote.options["aws_endpoint"], "flip": docs.sha256})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        options = {**remote.options, "aws_endpoint": f"http://127.0.0.1:{proxy.server_address[1]}"}
        cache = NodeCache(folder)
        with pytest.raises(DigestMismatchError, match=r"docs\.arrow"):
            fetch_current_version(cache, Store(remote.uri, options))
        assert not list(folder.glob(f"files/{docs.sha256}*"))
        handler.flip = "nothing"
        fetch_current_version(cache, Store(remote.uri, options))
        proxy.shutdown()
    check_whole(folder, index, version)
    cache.close()


def test_node_cache_imports_no_optional_dependency() -> None:
    code = "import sys, lsr_prod.storage.node_cache; print(','.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(",")
    assert not {"ray", "torch", "pydantic", "obstore", "deltalake", "tantivy", "onnxruntime"} & set(loaded)


def test_hostile_version_writes_no_file(index: Path, folder: Path, remote: Store, tmp_path: Path) -> None:
    (version,) = make_versions(index, 1)
    send(index, version, remote)
    for path in ("../../../../../evil", "/evil", "a/../../evil", "impacts\\..\\evil", "shard.json", "a\0b", ""):
        value = version.to_json()
        value["shards"][0]["files"][0]["path"] = path
        sha = digest_json(value)
        remote.put_new(f"versions/{sha}.json", canonical_json(value))
        head = current_publication(remote)
        hostile = Publication(head.number + 1, sha, "now")
        remote.put_new(f"publications/{hostile.number:06d}.json", canonical_json(hostile.to_json()))
        with pytest.raises(ArtifactError, match="cannot be trusted"):
            fetch_current_version(NodeCache(folder), remote)
    assert not list(tmp_path.rglob("evil"))
    assert not list(folder.rglob("files/*"))
    remote.put_new("publications/000099.json", canonical_json(Publication(99, version.sha, "now").to_json()))
    fetch_current_version(NodeCache(folder), remote)
    check_whole(folder, index, version)


@pytest.mark.long
def test_truncated_file_in_the_cache_is_fetched_again(index: Path, folder: Path, remote: Store) -> None:
    first, second = make_versions(index, 2)
    send(index, first, remote)
    cache = NodeCache(folder)
    fetch_current_version(cache, remote)
    shared = {file.sha256 for file in files_of(index, first)} & {file.sha256 for file in files_of(index, second)}
    cut = folder / "files" / sorted(shared)[0]
    cut.unlink()
    cut.write_bytes(b"")
    send(index, second, remote)
    fetch_current_version(cache, remote)
    check_whole(folder, index, first, second)
    cache.close()


@pytest.mark.long
def test_concurrent_processes_fetch_a_version_once(index: Path, folder: Path, remote: Store) -> None:
    (version,) = make_versions(index, 1)
    send(index, version, remote)
    racers = [start(FETCH_AND_SEARCH, remote, folder) for _ in range(3)]
    found = [finish(racer) for racer in racers]
    assert sorted(one[0] for one in found) == [0, 0, 1]
    assert sum(one[1] for one in found) == bytes_of(index, version)
    expected = [hit.doc_id for hit in Searcher.open(index).search_vector({0: 1.0}).hits]
    assert [one[2] for one in found] == [expected] * 3
    check_whole(folder, index, version)


def test_threads_share_a_cache(index: Path, folder: Path, remote: Store) -> None:
    (version,) = make_versions(index, 1)
    send(index, version, remote)
    cache = NodeCache(folder)
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: fetch_current_version(cache, remote)[0], range(16)))
    assert len(set(places)) == 1
    assert (cache.misses, cache.hits) == (1, 15)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for place in places:
        cache.release(place)
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 16
    cache.release(places[0])  # a surplus release has no effect
    check_whole(folder, index, version)


@pytest.mark.long
def test_concurrent_evictions_never_show_a_partial_version(index: Path, folder: Path, remote: Store) -> None:
    versions = make_versions(index, 3)
    for i, version in enumerate(versions):
        send(index, version, remote.child(str(i)))
    quota = bytes_of(index, *versions[:2]) + 3000
    racers = [start(FETCH_MANY, remote, folder, quota) for _ in range(2)]
    evicted = [finish(racer)[1] for racer in racers]
    assert sum(evicted) > 0
    assert sum(path.stat().st_size for path in (folder / "files").iterdir()) <= quota
