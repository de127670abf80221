"""Differences between two versions of an index."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.tombstones import load_tombstones, read_ids
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import IndexVersion, ShardManifest, Tombstones
from lsr_prod.storage.index_versions import read_version

_LINEAGE = ("bundle_digest", "vocabulary_sha256", "impact_step", "table_uri", "table_version")
_SETTINGS = ("dk", "stored_fields", "text_fields", "attributes", "analyzer", "average_length", "layout")


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between two versions."""

    documents: int  # documents of the new version minus those of the old one
    shards_added: int  # shards of the new version only
    shards_removed: int  # shards of the old version only
    shards_shared: int  # shards of both
    bytes_added: int  # bytes of the shards of the new version only
    bytes_removed: int  # bytes of the shards of the old version only
    hidden: int  # tombstones of the new version minus those of the old one
    takedowns_changed: bool  # whether the lists of takedowns differ
    # values of the two versions, for each field of the lineage that differs
    lineage: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    # values of the two versions, for each setting that differs
    settings: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the main changes in a few words."""
        words = []
        if "bundle_digest" in self.lineage:
            words.append("bundle {:.12} -> {:.12}".format(*self.lineage["bundle_digest"]))
        if "table_uri" in self.lineage:
            words.append("another table")
        elif "table_version" in self.lineage:
            words.append("table version {} -> {}".format(*self.lineage["table_version"]))
        if self.settings:
            words.append(f"settings {', '.join(self.settings)}")
        if self.documents:
            words.append(f"{self.documents:+,} documents")
        if self.shards_added or self.shards_removed:
            words.append(f"+{self.shards_added} -{self.shards_removed} shards")
        if self.hidden:
            words.append(f"{self.hidden:+,} tombstones")
        if self.takedowns_changed:
            words.append("takedowns")
        return "; ".join(words) or "nothing"


@dataclass(frozen=True, slots=True)
class ChangedIds:
    """Ids of the documents that differ, sorted."""

    added: list[str]  # documents of the new version only
    removed: list[str]  # documents of the old version only
    rewritten: list[str]  # documents of both, in another shard: changed, or merged or built again

    def to_json(self) -> dict[str, list[str]]:
        """Return the form that ``--json`` prints."""
        return asdict(self)


def compare_versions(old: IndexVersion, new: IndexVersion) -> Difference:
    """Return what changed from one version to another; only manifests are read."""
    before, after = ({shard.sha: shard for shard in version.shards} for version in (old, new))
    return Difference(
        documents=new.documents - old.documents,
        shards_added=len(after.keys() - before.keys()),
        shards_removed=len(before.keys() - after.keys()),
        shards_shared=len(before.keys() & after.keys()),
        bytes_added=_bytes(after[sha] for sha in after.keys() - before.keys()),
        bytes_removed=_bytes(before[sha] for sha in before.keys() - after.keys()),
        hidden=new.deleted - old.deleted,
        takedowns_changed=old.takedowns != new.takedowns,
        lineage=_changed(old, new, _LINEAGE),
        settings=_changed(old, new, _SETTINGS),
    )


def changed_ids(index: Store, old: IndexVersion, new: IndexVersion) -> ChangedIds:
    """Return the documents that differ; of shards of both versions only the rows whose tombstones differ are compared.

    The ids of all other shards are held in memory, about 100 bytes per document.

    Raises:
        ArtifactError: a shard or tombstones are missing or damaged.
        StorageError: the object store fails.
    """
    sides = [dict(_pairs(version)) for version in (old, new)]
    shards = {shard.sha: shard for version in (old, new) for shard in version.shards}
    before: set[str] = set()
    after: set[str] = set()
    for sha, shard in shards.items():
        if all(sha in side for side in sides) and sides[0][sha] == sides[1][sha]:
            continue
        ids = read_ids(index, shard)
        one, other = (_alive(index, shard, side) for side in sides)
        before |= set(ids.filter(pa.array(one & ~other)).to_pylist())
        after |= set(ids.filter(pa.array(other & ~one)).to_pylist())
    return ChangedIds(sorted(after - before), sorted(before - after), sorted(before & after))


def try_version(index: Store, sha: str) -> tuple[IndexVersion | None, str]:
    """Return a version and "", or None and why it cannot be read."""
    try:
        return read_version(index, sha), ""
    except ArtifactError as error:
        return None, str(error)


def version_bytes(version: IndexVersion) -> int:
    """Return the bytes of the shards and lists of a version, without its bundle."""
    lists = sum(one.file.size for one in version.tombstones if one)
    return _bytes(version.shards) + lists + (version.takedowns.size if version.takedowns else 0)


def _pairs(version: IndexVersion) -> Iterable[tuple[str, Tombstones | None]]:
    return zip((shard.sha for shard in version.shards), version.tombstones, strict=True)


def _alive(index: Store, shard: ShardManifest, side: Mapping[str, Tombstones | None]) -> npt.NDArray[np.bool_]:
    """Return bool [documents]: whether the version has the shard and does not hide the row."""
    alive = np.full(shard.documents, shard.sha in side)
    hidden = side.get(shard.sha)
    if hidden is not None:
        alive[load_tombstones(index, shard, hidden)] = False
    return alive


def _bytes(shards: Iterable[ShardManifest]) -> int:
    return sum(file.size for shard in shards for file in shard.files)


def _changed(old: IndexVersion, new: IndexVersion, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
