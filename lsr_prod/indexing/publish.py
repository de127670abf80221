"""Publish versions of an index after their gates, and publish an older one again.

A publication is a file that is created only if absent, so one of several concurrent writers gets each number. A version
is derived from the current one and is published as the next number or not at all: if another publication came first,
the caller derives the version again from the new current one, so that nothing published in between is lost.

``check_files`` and ``check_takedowns`` are gates that cannot be overruled. The gates with limits are in
``operations.gates``; a publisher gets them as an ``Inspect``.
"""

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import IN_PROCESS, Workers
from lsr_prod.indexing.tombstones import as_ids, hide_everywhere, load_takedowns, load_tombstones, save_takedowns
from lsr_prod.storage import Store, as_store, in_threads, index_versions, is_remote, publications, signatures, transfer
from lsr_prod.storage.formats import bundle_format, digests
from lsr_prod.storage.formats.index_format import (
    INDEX_FORMAT,
    SHARD_FILE,
    Forced,
    IndexVersion,
    Publication,
    ShardManifest,
)

log = logs.get_log(__name__)


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


@dataclass(frozen=True, slots=True)
class CurrentVersion:
    """The version that is current while the next one is derived."""

    number: int  # number of its publication; 0 if nothing is published
    # the version; None if nothing is published, or if its format is older than that of this release
    version: IndexVersion | None
    sha: str  # sha256 of the version; "" if nothing is published
    publication_sha: str  # sha256 of the publication; "" if nothing is published


class Publisher:
    """Publisher of versions of one index. It verifies the files of a shard once for all its attempts."""

    def __init__(self, index: Store | Path, *, inspect: Inspect | None = None, note: str = "") -> None:
        """Publish with the gates ``inspect`` of a deployment, and with a note for people."""
        self._index = index
        self._inspect = inspect
        self._note = note
        self._verified: Mapping[str, ShardManifest] = {}

    def publish_next(self, current: CurrentVersion, version: IndexVersion) -> Publication | None:
        """Publish a version that was derived from the current one.

        Returns:
            The publication; None if another one came first: derive the version again from the new current one.
        """
        try:
            return self.publish(version.sha, current.number)
        except errors.StaleParentError as error:
            log.info("another publication came first", extra={"fields": {"reason": str(error)}})
            return None

    def publish(self, version: str, parent: int | None) -> Publication:
        """Publish a version after its gates, unless it is current already.

        Files that the current version does not name are verified, and a version that restores documents that are taken
        down is refused (``check_takedowns``). A version that was derived from publication ``parent``, 0 if nothing was
        published, becomes ``parent + 1``, or is stale; None: it was not derived from a publication.
        """
        found = index_versions.read_version(self._index, version)
        touch_version(self._index, found)
        while True:
            current = read_current_version(self._index)
            if current.sha == version:
                return publications.read_publication(self._index, current.number)
            if parent is not None and current.number != parent:
                raise errors.StaleParentError(
                    f"publication {current.number} came after {parent}; derive the version from it again"
                )
            approval = self._pass_gates(found, current.version, derived=parent is not None)
            publication = signatures.sign(
                Publication(
                    current.number + 1,
                    version,
                    datetime.now(UTC).isoformat(timespec="seconds"),
                    self._note,
                    publisher_name(),
                    approval.forced,
                    approval.report,
                    current.publication_sha,
                )
            )
            # If the number is taken, another writer was faster: decide again from its publication.
            if publications.create_publication(self._index, publication):
                log.info("published", extra={"fields": publication.to_json()})
                return publication

    def _pass_gates(self, version: IndexVersion, current: IndexVersion | None, *, derived: bool) -> Approval:
        candidate = Candidate(self._index, version, current, derived, self._verified)
        check_files(candidate)
        check_takedowns(candidate)
        self._verified = {**self._verified, **{shard.sha: shard for shard in version.shards}}
        return Approval() if self._inspect is None else self._inspect(candidate)


def publisher_name() -> str:
    """Return who publishes: ``LSR_PROD_BY``, or the user and the host."""
    given = os.environ.get("LSR_PROD_BY")
    if given:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no entry for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def rollback(index: Store | Path, number: int, workers: Workers = IN_PROCESS) -> Publication:
    """Publish the version of an older publication again, without documents that were taken down since.

    If documents were taken down after publication ``number``, a version is derived from the older one that hides them
    too. Documents that were taken down then and restored since are hidden again, and stay on the list of takedowns;
    ``restore_documents`` restores them.

    Args:
        index: folder or store of the index.
        number: number of the older publication.
        workers: look up documents in the shards.

    Raises:
        PublicationError: there is no such publication.
        ArtifactError: a file of that version is missing or damaged.
    """
    older = index_versions.read_version(index, publications.read_publication(index, number).version)
    touch_version(index, older, manifests=True)  # garbage collection may be about to delete it
    publisher, publication = Publisher(index, note=f"rollback to {number}"), None
    while publication is None:
        current = read_current_version(index)
        version = take_down(index, older, load_takedowns(index, current.version) if current.version else [], workers)
        write_version(index, version)
        publication = publisher.publish_next(current, version)
    return publication


def take_down(index: Store | Path, version: IndexVersion, ids: Iterable[str], workers: Workers) -> IndexVersion:
    """Return the version with documents hidden and their ids on its list of takedowns; known ids change nothing."""
    before = load_takedowns(index, version)
    new = sorted(set(ids) - set(before))
    if not new:
        return version
    tombstones = hide_everywhere(index, version.shards, version.tombstones, as_ids(new), workers)
    return replace(version, tombstones=tombstones, takedowns=save_takedowns(index, [*before, *new]))


def read_current_version(index: Store | Path) -> CurrentVersion:
    """Read the current publication and its version."""
    publication = publications.find_current_publication(index)
    if publication is None:
        return CurrentVersion(0, None, "", "")
    try:
        version = index_versions.read_version(index, publication.version)
    except errors.FormatVersionError as error:
        if int(json.loads(as_store(index).get(_name(publication.version)) or b"")["format"]) > INDEX_FORMAT:
            raise
        fields = {"publication": publication.number, "reason": str(error)}
        log.warning("current version has an older format", extra={"fields": fields})
        version = None
    return CurrentVersion(publication.number, version, publication.version, publication.sha)


def write_version(index: Store | Path, version: IndexVersion) -> None:
    """Write ``versions/<sha>.json`` unless it exists, and touch all files of the version."""
    as_store(index).put_new(_name(version.sha), digests.record_bytes(version.to_json()))
    touch_version(index, version)


def touch_version(index: Store | Path, version: IndexVersion, *, manifests: bool = False) -> None:
    """Touch a version and all files and folders that it names, so that garbage collection keeps them for now.

    In an object store the version is enough, since garbage collection keeps what a young version names, unless one
    runs that has read the names already: ``manifests`` touches all of them there, too.
    """
    store, lists = as_store(index), [*version.tombstones, version.takedowns]
    names = [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    files = [one if isinstance(one, digests.FileDigest) else one.file for one in lists if one]
    names += [transfer.object_name(store, file) for file in files]
    names.append(f"bundles/{version.bundle_digest}/{bundle_format.BUNDLE_FILE}")

    def touch(name: str) -> None:
        try:
            store.touch(name)
        except FileNotFoundError as error:
            raise errors.ArtifactError(f"{store.uri}/{name} is missing; build the index again") from error

    in_threads(touch, [*(() if is_remote(store.uri) and not manifests else names), _name(version.sha)])


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


def check_takedowns(candidate: Candidate) -> None:
    """Reject a version that would restore documents that are taken down; a derived version has the same list."""
    if candidate.current is None or candidate.derived:
        return
    current, own = (load_takedowns(candidate.index, version) for version in (candidate.current, candidate.version))
    lost = set(current) - set(own)
    if lost:
        raise errors.PublicationError(
            f"version {candidate.version.sha[:12]} would bring back {len(lost)} documents that were taken down; "
            "build the index again"
        )


def _check_folder(index: Path, candidate: Candidate) -> None:
    version, current = candidate.version, candidate.current
    known = {**candidate.verified, **({shard.sha: shard for shard in current.shards} if current else {})}
    for shard in version.shards:
        if known.get(shard.sha) != shard:
            digests.verify_files(index / "shards" / shard.sha, shard.files)
    new_bundle = current is None or current.bundle_digest != version.bundle_digest
    bundle = bundle_format.Bundle.load(index / "bundles" / version.bundle_digest, verify=new_bundle)
    if bundle.digest != version.bundle_digest:
        raise errors.PublicationError(f"the bundle in {index} is not {version.bundle_digest}; build the index again")


def _name(sha: str) -> str:
    return f"versions/{sha}.json"
