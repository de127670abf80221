"""Garbage collection of folders that have the files of an index, but not their contents."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing import garbage
from lsr_prod.indexing.garbage import collect_garbage
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import PublicationPin
from lsr_prod.storage.version_locks import lock_version

OLD = time.time() - 7200
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def write(path: Path, content: object = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Three publications of three versions; each version has a shard, tombstones, a takedown list and a report."""
    for number, sha in enumerate((A, B, C), 1):
        write(tmp_path / "publications" / f"{number:06d}.json", {"version": sha, "report": sha})
        files = {"tombstones": [None, {"file": {"path": f"tombstones/{sha}.npy", "sha256": sha}}]}
        version = {
            "bundle_digest": sha,
            "shards": [{"sha": sha, "files": []}],
            **files,
            "takedowns": {"path": f"takedowns/{sha}.json", "sha256": sha},
        }
        write(tmp_path / "versions" / f"{sha}.json", version)
        for name in (f"tombstones/{sha}.npy", f"takedowns/{sha}.json", f"reports/{sha}.json"):
            write(tmp_path / name)
        write(tmp_path / "shards" / sha / "shard.json")
        write(tmp_path / "bundles" / sha / "bundle.json")
    for stray in ("publications/notes.json", "versions/notes.json", "tombstones/notes.txt", "shards/mine/notes.txt"):
        write(tmp_path / stray, {"version": "none"})
    make_old(tmp_path)
    return tmp_path


def make_old(index: Path) -> None:
    for path in index.rglob("*"):
        os.utime(path, (OLD, OLD))


def left(index: Path) -> dict[str, set[str]]:
    """Return the first letters of what is left of each folder."""
    found = {folder.name: {path.name for path in folder.iterdir()} for folder in index.iterdir() if folder.is_dir()}
    return {name: {one[0] for one in names if len(one) >= 64} for name, names in found.items()}


def test_everything_that_only_old_publications_name_is_deleted_and_strays_stay(index: Path) -> None:
    collected = collect_garbage(index, keep=1, age_s=3600)
    kept = ("versions", "tombstones", "takedowns", "reports", "shards", "bundles")
    assert left(index) == {"publications": set(), **{name: {"c"} for name in kept}}
    assert (collected.publications, collected.objects) == (2, 12)
    assert [path.name for path in sorted((index / "publications").iterdir())] == ["000003.json", "notes.json"]
    for stray in ("versions/notes.json", "tombstones/notes.txt", "shards/mine/notes.txt"):
        assert (index / stray).is_file()


def test_pinned_publication_keeps_its_files(index: Path) -> None:
    pin = PublicationPin(1, A, "2026-01-01T00:00:00+00:00", "me", "audit")
    write(index / "pins" / "000001.json", pin.to_json())
    collect_garbage(index, keep=1, age_s=3600)
    assert left(index)["shards"] == left(index)["reports"] == {"a", "c"}
    assert (index / "publications" / "000001.json").is_file()


def test_file_that_is_used_after_the_listing_is_kept(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_versions = garbage._kept_versions

    def use(*arguments: Any) -> set[str]:
        os.utime(index / "tombstones" / f"{A}.npy")
        (index / "takedowns" / f"{A}.json").unlink()  # by another garbage collection
        return kept_versions(*arguments)

    monkeypatch.setattr(garbage, "_kept_versions", use)
    assert collect_garbage(index, keep=1, age_s=3600).objects == 10
    assert left(index)["tombstones"] == {"a", "c"}


def test_times_of_folders_are_those_of_their_manifests(index: Path) -> None:
    write(index / "shards" / A / "impacts" / "ids.npy")  # younger than the manifest, which every use touches
    incomplete, plain = index / "shards" / ("d" * 64), index / "shards" / ("e" * 64)
    write(incomplete / "impacts" / "ids.npy")
    write(plain)
    for path in (*incomplete.rglob("*"), incomplete, plain):
        os.utime(path, (OLD, OLD))
    collect_garbage(index, keep=1, age_s=3600)
    assert left(index)["shards"] == {"c", "e"}


def test_version_that_another_collection_deletes_meanwhile_is_skipped(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = garbage._versions(Store(str(index)))
    monkeypatch.setattr(garbage, "_versions", lambda _, since=0.0: set() if since else listed)
    (index / "versions" / f"{A}.json").unlink()
    collect_garbage(index, keep=1, age_s=3600)
    assert left(index)["shards"] == {"c"}


def test_damaged_version_that_a_process_reads_ends_the_collection(index: Path) -> None:
    descriptor = lock_version(index, B)
    assert descriptor is not None
    (index / "versions" / f"{B}.json").write_text("{")
    os.utime(index / "versions" / f"{B}.json", (OLD, OLD))
    with pytest.raises(ArtifactError, match="cannot be read"):
        collect_garbage(index, keep=1, age_s=3600)
    os.close(descriptor)
    assert left(index)["shards"] == {"a", "b", "c"}


def test_young_files_and_drafts_stay_and_old_drafts_go(index: Path) -> None:
    shard = index / "shards" / A / "shard.json"
    draft = index / "shards" / f".{A}.{'0' * 32}.tmp"
    write(draft / "impacts" / "ids.npy")
    young = index / "versions" / f".{A}.json.{'1' * 32}.tmp"
    write(young)
    old, mine = index / "pins" / f".000009.json.{'2' * 32}.tmp", index / "versions" / ".notes"
    copied = index / "shards" / f".{B}.{'3' * 32}.tmp"
    empty, begun = index / "bundles" / f".{A}.{'4' * 32}.tmp", index / "bundles" / f".{B}.{'5' * 32}.tmp"
    for path in (empty, begun):
        path.mkdir()
    for path in (old, mine, copied / "shard.json"):
        write(path)
    make_old(draft)
    for path in (draft, old, mine, copied / "shard.json", empty):
        os.utime(path, (OLD, OLD))
    write(copied / "impacts" / "ids.npy")  # a build still writes the draft, its manifest is a copy
    os.utime(shard)
    collect_garbage(index, keep=1, age_s=3600)
    assert shard.is_file()
    assert young.is_file()
    assert mine.is_file()
    assert copied.is_dir()
    assert not draft.exists()
    assert not old.exists()
    assert not empty.exists()
    assert begun.is_dir()


def test_version_that_a_process_reads_keeps_its_files(index: Path) -> None:
    descriptor = lock_version(index, B)
    assert descriptor is not None
    collect_garbage(index, keep=1, age_s=3600)
    os.close(descriptor)
    assert left(index)["versions"] == left(index)["bundles"] == {"b", "c"}


def test_kept_version_that_is_damaged_or_missing_ends_the_collection(index: Path) -> None:
    (index / "versions" / f"{C}.json").write_text("{")
    make_old(index)
    with pytest.raises(ArtifactError, match="cannot be read"):
        collect_garbage(index, keep=1, age_s=3600)
    assert left(index)["shards"] == {"a", "b", "c"}
    (index / "versions" / f"{C}.json").unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        collect_garbage(index, keep=1, age_s=3600)
