"""What every version must pass before it is published, and the interface to the gates of a deployment.

``check_files`` and ``check_takedowns`` verify what no reason can excuse. The gates with limits are
in ``operations.gates``; they are given to a publisher as an ``Inspect``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lsr_prod.errors import PublicationError
from lsr_prod.indexing.tombstones import load_takedowns, load_tombstones
from lsr_prod.storage import Store, as_store, index_versions, is_remote
from lsr_prod.storage.formats.bundle import Bundle
from lsr_prod.storage.formats.digest import verify_files
from lsr_prod.storage.formats.index import IndexVersion, ShardManifest
from lsr_prod.storage.formats.publication import Forced


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version to publish, and what the gates compare it with."""

    index: Store | Path  # folder or store of the index
    version: IndexVersion  # the version to publish
    current: IndexVersion | None  # the current version; None if there is none that this release can read
    derived: bool  # whether the version was derived from the current one
    # shards whose files need no further verification, by sha256
    verified: Mapping[str, ShardManifest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Approval:
    """Decision of the gates of a deployment about a version that may be published."""

    forced: tuple[Forced, ...] = ()  # gates that refused it and were overruled
    report: str = ""  # sha256 of their report; "": there is none


Inspect = Callable[[Candidate], Approval]
"""Runs the gates of a deployment; raises ``PublicationError`` if the version is refused."""


def check_files(candidate: Candidate) -> None:
    """Verify the digests of new files; files of the current version were verified when it was published.

    Files of an object store were compared with their digests while they were sent, and readers compare them again:
    here their names and sizes are verified, by one listing.
    """
    store, version = as_store(candidate.index), candidate.version
    for shard, tombstones in zip(version.shards, version.tombstones, strict=True):
        if tombstones is not None:
            load_tombstones(store, shard, tombstones)
    load_takedowns(store, version)
    if is_remote(store.uri):
        index_versions.check_files(store, version)
    else:
        _check_folder(Path(store.uri), candidate)


def _check_folder(index: Path, candidate: Candidate) -> None:
    version, current = candidate.version, candidate.current
    known = {**candidate.verified, **({shard.sha: shard for shard in current.shards} if current else {})}
    for shard in version.shards:
        if known.get(shard.sha) != shard:
            verify_files(index / "shards" / shard.sha, shard.files)
    new_bundle = current is None or current.bundle_digest != version.bundle_digest
    bundle = Bundle.load(index / "bundles" / version.bundle_digest, verify=new_bundle)
    if bundle.digest != version.bundle_digest:
        raise PublicationError(f"the bundle in {index} is not {version.bundle_digest}; build the index again")


def check_takedowns(candidate: Candidate) -> None:
    """Reject a version that would restore documents that are taken down; a derived version has the same list."""
    if candidate.current is None or candidate.derived:
        return
    current, own = (load_takedowns(candidate.index, version) for version in (candidate.current, candidate.version))
    lost = set(current) - set(own)
    if lost:
        raise PublicationError(
            f"version {candidate.version.sha[:12]} would bring back {len(lost)} documents that were taken down; "
            "build the index again"
        )
