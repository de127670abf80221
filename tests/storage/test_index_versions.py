"""Manifests read from a store are compared with their digests; names in them never leave the index."""

from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, PublicationError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import FileDigest, canonical_json, digest_json
from lsr_prod.storage.formats.index_format import IndexVersion, Publication, ShardManifest, Tombstones
from lsr_prod.storage.index_versions import BundleManifest, check_files, read_bundle, read_version, version_files
from lsr_prod.storage.publications import find_current_publication, read_publication
from tests.indexing.remote import files_of, make_versions, overwrite, send, with_takedown

FILE = FileDigest("docs.arrow", "c" * 64, 5)
OTHER = FileDigest("docs.arrow", "d" * 64, 5)
SHARD = ShardManifest("a" * 64, 3, 7, "base", {"impacts": 10}, (FILE,))
VERSION = IndexVersion((SHARD,), "b" * 64, "d" * 64, 0.3, 20, "table", 4, ("text",), ("text",))
NO_BUNDLE = BundleManifest(b"{}", ())


def test_version_files_are_bundle_shards_tombstones_and_takedowns(tmp_path: Path) -> None:
    version = with_takedown(tmp_path, make_versions(tmp_path, 1)[0])
    files = files_of(tmp_path, version)
    on_disk = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    manifests = {
        name for name in on_disk if name.startswith(("versions", "publications")) or name.endswith("/shard.json")
    }
    manifests.add(f"bundles/{version.bundle_digest}/bundle.json")
    assert {file.path for file in files} == on_disk - manifests
    assert {path.split("/")[0] for path in (file.path for file in files)} == {
        "bundles",
        "shards",
        "takedowns",
        "tombstones",
    }


@pytest.mark.parametrize(
    "files",
    [
        (FILE, OTHER),
        (FILE, FileDigest("docs.arrow/inside", "c" * 64, 5)),
        (FileDigest("shard.json", "c" * 64, 5),),
        (FileDigest("a\0b", "c" * 64, 5),),
    ],
)
def test_files_with_conflicting_paths_raise(files: tuple[FileDigest, ...]) -> None:
    version = replace(VERSION, shards=(replace(SHARD, files=files),))
    with pytest.raises(ArtifactError, match="cannot be trusted"):
        version_files(version, NO_BUNDLE)


def test_two_shards_can_share_a_tombstone_file() -> None:
    one = Tombstones(FileDigest("tombstones/x.npy", "e" * 64, 4), 1)
    version = replace(VERSION, shards=(SHARD, replace(SHARD, sha="f" * 64)), tombstones=(one, one))
    paths = [file.path for file in version_files(version, NO_BUNDLE)]
    assert paths.count(f"tombstones/{'e' * 64}.npy") == 1


def _hostile(change: dict[str, object]) -> dict[str, object]:
    return {**VERSION.to_json(), **change}


@pytest.mark.parametrize(
    "value",
    [
        _hostile({"bundle_digest": "../../etc"}),
        _hostile({"bundle_digest": "b" * 64 + "\n"}),
        _hostile({"shards": [{**SHARD.to_json(), "sha": "../" + "a" * 61}]}),
        _hostile({"shards": [{**SHARD.to_json(), "files": [{"path": "../x", "sha256": "c" * 64, "size": 1}]}]}),
        _hostile({"shards": [{**SHARD.to_json(), "files": [{"path": "x", "sha256": "c" * 64, "size": -1}]}]}),
        _hostile({"takedowns": {"path": "x", "sha256": "/etc/passwd", "size": 1}}),
        _hostile({"shards": 7}),
        _hostile({"impact_step": None}),
        _hostile({"more": 1}),
        [],
        None,
    ],
)
def test_hostile_version_with_correct_digest_raises(tmp_path: Path, value: object) -> None:
    store = Store(str(tmp_path))
    sha = digest_json(value)
    store.put_new(f"versions/{sha}.json", canonical_json(value))
    with pytest.raises(ArtifactError):
        read_version(store, sha)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_name_that_is_no_sha256_is_never_looked_up(tmp_path: Path, name: str) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(ArtifactError, match="no sha256"):
        read_version(store, name)
    store.put_new("publications/000001.json", canonical_json(Publication(1, name, "now").to_json()))
    with pytest.raises(ArtifactError, match="no sha256"):
        find_current_publication(store)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"version": 1}', b"\xff", b"null"])
def test_damaged_manifests_raise_artifact_errors(tmp_path: Path, data: bytes) -> None:
    store = Store(str(tmp_path))
    store.put_new("publications/000001.json", data)
    with pytest.raises(ArtifactError, match="publish a version again"):
        find_current_publication(store)
    store.put_new(f"versions/{'a' * 64}.json", data)
    with pytest.raises(DigestMismatchError):
        read_version(store, "a" * 64)
    store.put_new(f"bundles/{'a' * 64}/bundle.json", data)
    with pytest.raises(DigestMismatchError):
        read_bundle(store, "a" * 64)


def test_current_publication_has_the_largest_number_and_is_no_draft(tmp_path: Path, s3_options: dict[str, str]) -> None:
    for store in (Store(str(tmp_path)), Store(f"s3://lsr/{tmp_path.name}", s3_options)):
        assert find_current_publication(store) is None
        for number in (2, 999_999, 1_000_000):
            data = canonical_json(Publication(number, "e" * 64, "now").to_json())
            store.put_new(f"publications/{number:06d}.json", data)
        store.put_new("publications/.2000000.json.tmp", b"{")
        found = find_current_publication(store)
        assert found is not None
        assert found.number == 1_000_000
        with pytest.raises(PublicationError, match="no publication 3"):
            read_publication(store, 3)


def test_incomplete_remote_version_raises(tmp_path: Path, s3_options: dict[str, str]) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    (version,) = make_versions(tmp_path, 1)
    send(tmp_path, version, store)
    check_files(store, version)
    name = f"files/{version.shards[0].files[0].sha256}"
    whole = store.get(name)
    assert whole is not None
    overwrite(store, name, whole + b"x")
    with pytest.raises(DigestMismatchError, match="delete it; run lsr-prod index build"):
        check_files(store, version)
    store.delete(name)
    with pytest.raises(ArtifactError, match="run lsr-prod index build"):
        check_files(store, version)
