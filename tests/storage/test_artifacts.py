"""Artifacts in a work store: visible whole or not at all, with every byte as it was put."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, FormatVersionError, StorageError
from lsr_prod.storage import Store, transfer
from lsr_prod.storage.artifacts import fetch_artifact, has_artifact, make_private, put_artifact, user_cache
from lsr_prod.storage.cache_folder import make_room
from lsr_prod.storage.formats.digests import FileDigest
from lsr_prod.storage.node_cache import NodeCache
from tests.indexing.remote import overwrite

CONTENT = {"card.json": b"{}", "1_pooling/config.json": b'{"a": 1}', "weights": bytes(range(256)) * 40, "empty": b""}
KILLED = """
import json, os, sys
from pathlib import Path
from lsr_prod.storage import Store
from lsr_prod.storage import artifacts, drafts
folder, uri, options, verb, last = sys.argv[1:]
owner = drafts if verb == "create_file" else Path if verb == "rename" else Store
real, calls = getattr(owner, verb), []
def killing(*arguments, **named):
    calls.append(1)
    if len(calls) == int(last):
        os.kill(os.getpid(), 9)
    return real(*arguments, **named)
setattr(owner, verb, killing)
artifacts.put_artifact(Store(uri, json.loads(options)), "models/one", Path(folder))
"""
FETCH = """
import json, sys
from pathlib import Path
from lsr_prod.storage import Store
from lsr_prod.storage import artifacts, drafts
uri, options, cache = sys.argv[1:]
read, pieces = Store.read_range, []
Store.read_range = lambda self, *rest: pieces.append(1) or read(self, *rest)
place = artifacts.fetch_artifact(Store(uri, json.loads(options)), "models/one", cache=Path(cache))
print(json.dumps([str(place), len(pieces)]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in CONTENT.items():
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "made"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(str(tmp_path / "work"))
    return Store(f"s3://lsr/{tmp_path.name}", request.getfixturevalue("s3_options"))


@pytest.fixture
def remote(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/{tmp_path.name}", s3_options)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def descriptors_in(folder: Path) -> int:
    """Count open descriptors of files below a folder; those of connections come and go."""
    targets = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink() and one.exists()]
    return sum(target.startswith(f"{folder}/") for target in targets)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)


def test_fetched_artifact_equals_put_folder(store: Store, folder: Path, cache: Path) -> None:
    assert not has_artifact(store, "models/one")
    with pytest.raises(ArtifactError, match="has no models/one"):
        fetch_artifact(store, "models/one", cache=cache)
    for _ in range(2):
        put_artifact(store, "models/one", folder)
        assert has_artifact(store, "models/one")
        assert contents(fetch_artifact(store, "models/one", cache=cache)) == CONTENT


def test_local_artifact_is_not_copied_and_fetched_one_is_read_only(
    tmp_path: Path, remote: Store, folder: Path, cache: Path
) -> None:
    local = Store(str(tmp_path / "work"))
    put_artifact(local, "models/one", folder)
    assert fetch_artifact(local, "models/one") == tmp_path / "work" / "models" / "one"
    put_artifact(remote, "models/one", folder)
    place = fetch_artifact(remote, "models/one", cache=cache)
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()} == {0o444}
    assert cache.stat().st_mode & 0o777 == 0o700


def test_fetched_artifact_is_in_use_once_until_the_process_ends(remote: Store, folder: Path, cache: Path) -> None:
    put_artifact(remote, "models/one", folder)
    place = fetch_artifact(remote, "models/one", cache=cache)
    before = descriptors_in(cache)
    assert {fetch_artifact(remote, "models/one", cache=cache) for _ in range(5)} == {place}
    assert descriptors_in(cache) == before == 1
    files = {"0" * 64: FileDigest("x", "0" * 64, 1)}
    with pytest.raises(StorageError, match="with the artifacts in use"):
        make_room(cache, files, 1)


def test_user_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "node"))
    assert user_cache() == tmp_path / "node"
    monkeypatch.delenv("LSR_PROD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert user_cache() == tmp_path / "x" / "lsr_prod"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "h"))
    assert user_cache() == tmp_path / "h" / ".cache" / "lsr_prod"


def test_user_without_a_home_folder_is_told_which_setting_names_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("LSR_PROD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    with pytest.raises(ConfigError, match=r"LSR_PROD_CACHE: user \d+ has no home folder; set it, or HOME, to a folder"):
        user_cache()


@pytest.mark.root
def test_cache_in_a_volume_of_root_is_used_and_one_of_another_user_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # the folders above are closed to others
    volume, other, shared, own = map(Path, ("volume", "other", "shared", "own"))
    for folder, owner, mode in ((volume, 0, 0o2777), (other, 10002, 0o777), (shared, 0, 0o1777), (own, 10001, 0o755)):
        folder.mkdir()
        os.chown(folder, owner, 10001)
        folder.chmod(mode)
    child = os.fork()  # threads of this process may lack the right to become another user
    if child == 0:
        try:
            os.seteuid(10001)
            make_private(volume)
            make_private(own)
            for folder in (other, shared):
                with pytest.raises(StorageError, match=f"{folder.name} belongs to another user, or every user may"):
                    make_private(folder)
            os._exit(0)
        except BaseException:  # noqa: BLE001 (the child must not run the rest of the tests)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(StorageError, match="shared belongs to another user"):
        make_private(shared)
    assert [path.stat().st_mode & 0o7777 for path in (volume, other, shared, own)] == [0o2777, 0o777, 0o1777, 0o700]


def test_put_of_other_content_under_a_used_name_raises(store: Store, folder: Path) -> None:
    put_artifact(store, "models/one", folder)
    (folder / "card.json").write_bytes(b"[]")
    with pytest.raises(ArtifactError, match="has other content"):
        put_artifact(store, "models/one", folder)
    with pytest.raises(ArtifactError, match="has no files"):
        put_artifact(store, "models/two", folder / "nowhere")


def test_put_resumes_only_with_the_same_content(tmp_path: Path, folder: Path) -> None:
    store = Store(str(tmp_path / "work"))
    put_artifact(store, "models/one", folder)
    store.delete("models/one.json")  # killed before the manifest
    put_artifact(store, "models/one", folder)
    store.delete("models/one.json")
    (folder / "card.json").write_bytes(b"[]")
    with pytest.raises(DigestMismatchError, match=r"card\.json"):
        put_artifact(store, "models/one", folder)
    assert not has_artifact(store, "models/one")


@pytest.mark.parametrize(
    ("kind", "verb", "last"),
    [
        ("local", "create_file", 1),
        ("local", "create_file", 3),
        ("local", "rename", 1),
        ("local", "put_new", 1),
        ("s3", "put_file_new", 1),
        ("s3", "put_file_new", 4),
        ("s3", "put_new", 2),
        ("s3", "put_new", 5),
    ],
)
def test_killed_put_is_not_visible_and_resumes(
    tmp_path: Path, remote: Store, folder: Path, cache: Path, kind: str, verb: str, last: int
) -> None:
    store = remote if kind == "s3" else Store(str(tmp_path / "work"))
    command = [sys.executable, "-c", KILLED, str(folder), store.uri, json.dumps(store.options), verb, str(last)]
    assert subprocess.run(command, check=False).returncode == -9
    assert not has_artifact(store, "models/one")
    with pytest.raises(ArtifactError, match="has no models/one"):
        fetch_artifact(store, "models/one", cache=cache)
    put_artifact(store, "models/one", folder)
    assert contents(fetch_artifact(store, "models/one", cache=cache)) == CONTENT


def test_concurrent_puts_of_one_folder_end_in_one_state(store: Store, folder: Path, cache: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), store.uri, json.dumps(store.options), "put_new", "99"]
    racers = [subprocess.Popen(command) for _ in range(3)]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]
    assert contents(fetch_artifact(store, "models/one", cache=cache)) == CONTENT


def test_artifact_in_a_cache_that_cannot_be_written_is_verified_and_returned(
    remote: Store, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_artifact(remote, "models/a", folder)
    fetched = fetch_artifact(remote, "models/a", cache=cache)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr(Path, "chmod", lambda *_: pytest.fail("the cache is read-only"))
    assert fetch_artifact(remote, "models/a", cache=cache) == fetched


def test_concurrent_processes_fetch_an_artifact_once(remote: Store, folder: Path, cache: Path) -> None:
    put_artifact(remote, "models/one", folder)
    command = [sys.executable, "-c", FETCH, remote.uri, json.dumps(remote.options), str(cache)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert len({place for place, _ in answers}) == 1
    assert sorted(pieces for _, pieces in answers) == [0, 0, sum(bool(data) for data in CONTENT.values())]
    assert contents(Path(answers[0][0])) == CONTENT


def test_fetch_resumes_after_service_failure(
    remote: Store, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_artifact(remote, "models/one", folder)
    monkeypatch.setattr(transfer, "_PIECE", 1000)
    read, fetched = Store.read_range, 0

    def counting(self: Store, name: str, start: int, length: int) -> bytes:
        nonlocal fetched
        if start == 5000 and fetched < 6000:
            fetched += 6000
            raise StorageError("the service is away")
        return read(self, name, start, length)

    monkeypatch.setattr(Store, "read_range", counting)
    with pytest.raises(StorageError, match="away"):
        fetch_artifact(remote, "models/one", cache=cache)
    assert not list(cache.glob("artifacts/artifacts/*/"))
    assert contents(fetch_artifact(remote, "models/one", cache=cache)) == CONTENT


def test_flipped_bit_in_local_artifact_raises(tmp_path: Path, folder: Path) -> None:
    store = Store(str(tmp_path / "work"))
    put_artifact(store, "models/one", folder)
    flip(tmp_path / "work" / "models" / "one" / "weights")
    with pytest.raises(DigestMismatchError, match=r"weights differs.*delete"):
        fetch_artifact(store, "models/one")
    fetch_artifact(store, "models/one", verify=False)
    (tmp_path / "work" / "models" / "one" / "weights").write_bytes(b"short")
    with pytest.raises(ArtifactError, match="weights is missing, or does not have 10240 bytes"):
        fetch_artifact(store, "models/one", verify=False)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "deleted"])
def test_damaged_file_in_the_cache_is_fetched_again_once(
    remote: Store, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    put_artifact(remote, "models/one", folder)
    weights = fetch_artifact(remote, "models/one", cache=cache) / "weights"
    with weights.open("rb") as reader:
        if damage == "flipped":
            flip(weights)
        elif damage == "truncated":
            weights.chmod(0o644)
            weights.write_bytes(CONTENT["weights"][:100])
        else:
            weights.unlink()
        fetched, real = [], NodeCache._fetch_missing
        monkeypatch.setattr(NodeCache, "_fetch_missing", lambda *given: fetched.append(1) or real(*given))
        for _ in range(2):
            assert contents(fetch_artifact(remote, "models/one", cache=cache, verify=damage == "flipped")) == CONTENT
        assert len(fetched) == 1
        assert len(reader.read()) in (100, 10240)  # a reader keeps the file that it opened
    assert weights.stat().st_mode & 0o777 == 0o444
    assert not list(cache.rglob("*.tmp"))


def test_failed_repair_keeps_the_artifact_and_no_descriptor(remote: Store, folder: Path, cache: Path) -> None:
    put_artifact(remote, "models/one", folder)
    place = fetch_artifact(remote, "models/one", cache=cache)
    flip(place / "weights")
    (name,) = [entry.name for entry in remote.entries("models/one") if entry.size == 10240]
    data = remote.get(name)
    assert data is not None
    remote.delete(name)
    before = descriptors_in(cache)
    for _ in range(3):
        with pytest.raises(ArtifactError, match=r"\(weights\) is missing"):
            fetch_artifact(remote, "models/one", cache=cache)
    assert descriptors_in(cache) == before
    remote.put_new(name, data)
    assert contents(fetch_artifact(remote, "models/one", cache=cache)) == CONTENT


def test_quota_of_the_user_cache_is_read_from_the_environment(
    remote: Store, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_artifact(remote, "models/one", folder)
    monkeypatch.setenv("LSR_PROD_CACHE", str(cache))
    monkeypatch.setenv("LSR_PROD_CACHE_BYTES", "1000")
    with pytest.raises(StorageError, match="quota of 1000"):
        fetch_artifact(remote, "models/one")
    monkeypatch.setenv("LSR_PROD_CACHE_BYTES", "100_000")
    with pytest.raises(ConfigError, match="LSR_PROD_CACHE_BYTES: '100_000' is no number of bytes"):
        fetch_artifact(remote, "models/one")
    monkeypatch.setenv("LSR_PROD_CACHE_BYTES", "100000")
    assert fetch_artifact(remote, "models/one").is_relative_to(cache)


def test_damaged_object_raises_and_nothing_of_it_is_kept(remote: Store, folder: Path, cache: Path) -> None:
    put_artifact(remote, "models/one", folder)
    (name,) = [entry.name for entry in remote.entries("models/one") if entry.size == 10240]
    data = remote.get(name)
    assert data is not None
    overwrite(remote, name, b"\x07" + data[1:])
    with pytest.raises(DigestMismatchError, match=r"\(weights\) has another size or sha256"):
        fetch_artifact(remote, "models/one", cache=cache / "other")
    assert not list((cache / "other").glob("artifacts/artifacts/*/"))
    remote.delete(name)
    with pytest.raises(ArtifactError, match=r"\(weights\) is missing"):
        fetch_artifact(remote, "models/one", cache=cache / "other")


SHA = "0" * 64


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ({"format": 1, "files": [{"path": "../x", "sha256": SHA, "size": 1}]}, "cannot be trusted"),
        ({"format": 1, "files": [{"path": "/etc/x", "sha256": SHA, "size": 1}]}, "cannot be trusted"),
        ({"format": 1, "files": [{"path": "a/../../x", "sha256": SHA, "size": 1}]}, "cannot be trusted"),
        ({"format": 1, "files": [{"path": "x", "sha256": "../" + SHA[3:], "size": 1}]}, "cannot be trusted"),
        ({"format": 1, "files": [{"path": "x", "sha256": SHA, "size": -1}]}, "cannot be trusted"),
        ({"format": 1, "files": [{"path": "x", "sha256": SHA, "size": 1}] * 2}, "cannot be trusted"),
        ({"format": 1, "files": []}, "cannot be trusted"),
        ({"format": 1}, "is damaged"),
        ({"format": 2, "files": []}, "reads 1"),
        ([1], "is damaged"),
        (None, "is damaged"),
    ],
)
def test_malformed_manifest_raises_before_anything_is_fetched(
    store: Store, cache: Path, manifest: object, problem: str
) -> None:
    store.put_new("models/one.json", json.dumps(manifest).encode())
    with pytest.raises(ArtifactError, match=problem) as caught:
        fetch_artifact(store, "models/one", cache=cache)
    assert isinstance(caught.value, FormatVersionError) == (problem == "reads 1")
    assert not cache.exists()


def test_manifest_that_is_no_json_raises(store: Store, cache: Path) -> None:
    store.put_new("models/one.json", b"\xff{")
    with pytest.raises(ArtifactError, match="is damaged"):
        fetch_artifact(store, "models/one", cache=cache)


def test_name_outside_the_store_raises(store: Store, folder: Path) -> None:
    with pytest.raises(ValueError, match="leaves its folder"):
        put_artifact(store, "../one", folder)
