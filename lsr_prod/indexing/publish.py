"""Make a version current, through gates; make an older one current again.

A publication is a file that is created only if it is absent: of two writers, one wins each number. A version is derived
from the publication that was current, its parent, and is published as the next number or not at all: whoever finds that
the head has moved derives again from there, so that nothing that was published in between is lost.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lsr_prod.errors import FormatVersionError, PublicationError, StaleParentError
from lsr_prod.formats.bundle import Bundle
from lsr_prod.formats.digest import canonical_json, verify_files
from lsr_prod.formats.index import INDEX_FORMAT, IndexVersion, ShardManifest
from lsr_prod.formats.publication import Publication, publication_name
from lsr_prod.indexing.tombstones import load_takedowns, load_tombstones
from lsr_prod.indexing.versions import take_down, touch_version, version_format, write_version
from lsr_prod.storage import Store
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication, read_publication

__all__ = ["Head", "publish", "publish_derived", "read_head", "rollback"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """What is current, as a writer sees it that derives the next version.

    Attributes:
        number: of the publication; 0: nothing is published.
        version: the version; None: nothing is published, or in a format that is older than this release's.
        sha: names the version; "" where nothing is published.
    """

    number: int
    version: IndexVersion | None
    sha: str


def read_head(index: Path) -> Head:
    """The current publication and its version.

    Raises:
        ArtifactError: the version is missing or damaged.
        FormatVersionError: a newer release wrote it.
    """
    folder = index / "publications"
    if not folder.is_dir() or not any(folder.glob("*.json")):
        return Head(0, None, "")
    publication = current_publication(index)
    try:
        version = read_version(index, publication.version)
    except FormatVersionError as error:
        if version_format(index, publication.version) > INDEX_FORMAT:
            raise
        log.warning("head is not read", extra={"fields": {"publication": publication.number, "why": str(error)}})
        return Head(publication.number, None, publication.version)
    return Head(publication.number, version, publication.version)


def publish(
    index: Path, version: str, *, parent: int | None = None, max_shrink: float = 1.0, note: str = ""
) -> Publication:
    """Publish a version after its gates; the version that is already current is left as it is.

    Gates: every file that the current version does not name has its recorded sha256; the tombstones fit their shards;
    the version does not lose more than the share ``max_shrink`` of the current version's documents.

    Args:
        index: the index folder.
        version: sha256 of a version of it.
        parent: number of the publication that the version was derived from, 0 for none: it becomes ``parent + 1``.
            None: the version was derived from none that is known, and has to hold every takedown of the current one.
        max_shrink: 0..1.
        note: kept in the publication, for people.

    Returns:
        The publication that makes ``version`` current.

    Raises:
        StaleParentError: another publication came after ``parent``; derive the version again.
        PublicationError: a gate refuses.
        ArtifactError: a file is missing or damaged.
    """
    return _publish(index, version, parent, max_shrink, note, {})


def _publish(
    index: Path, version: str, parent: int | None, max_shrink: float, note: str, passed: dict[str, ShardManifest]
) -> Publication:
    """As ``publish``; shards that passed the gate are noted, and are not read again by the next try."""
    candidate = read_version(index, version)
    touch_version(index, candidate)
    while True:
        head = read_head(index)
        if head.sha == version:
            return read_publication(index, head.number)
        if parent is not None and head.number != parent:
            raise StaleParentError(f"publication {head.number} came after {parent}; derive the version from it again")
        _check_files(index, candidate, head.version, passed)
        if head.version is not None:
            _check_shrink(head.version, candidate, max_shrink)
            if parent is None:
                _check_takedowns(index, head.version, candidate)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        publication = Publication(head.number + 1, version, now, note)
        name = f"publications/{publication_name(publication.number)}"
        # A refused number means that the head has moved on: decide again from there.
        if Store(str(index)).put_new(name, canonical_json(publication.to_json()) + b"\n"):
            log.info("published", extra={"fields": publication.to_json()})
            return publication


def publish_derived(
    index: Path, derive: Callable[[Head], IndexVersion], *, max_shrink: float = 1.0, note: str = ""
) -> Publication:
    """Derive a version from what is current and publish it; again from the new head as long as others come first.

    Args:
        index: the index folder.
        derive: makes and writes the version; called once for every head that is tried.
        max_shrink: as in ``publish``.
        note: as in ``publish``.

    Raises:
        PublicationError: a gate refuses.
        ArtifactError: a file is missing or damaged.
    """
    passed: dict[str, ShardManifest] = {}
    while True:
        head = read_head(index)
        try:
            return _publish(index, derive(head).sha, head.number, max_shrink, note, passed)
        except StaleParentError as error:
            log.info("derived again", extra={"fields": {"why": str(error)}})


def rollback(index: Path, number: int) -> Publication:
    """Publish the version of publication ``number`` again, without what was taken down since.

    Takedowns stay effective: where documents were taken down after publication ``number``, a version is derived from
    the older one that hides them too. Documents that were taken down then and restored since are hidden again, and stay
    on the list; ``restore_documents`` brings them back.

    Raises:
        PublicationError: there is no such publication.
        ArtifactError: a file of that version is missing or damaged.
    """
    older = read_version(index, read_publication(index, number).version)

    def derive(head: Head) -> IndexVersion:
        since = load_takedowns(index, head.version) if head.version else []
        version = take_down(index, older, since)
        write_version(index, version)
        return version

    return publish_derived(index, derive, note=f"rollback to {number}")


def _check_files(
    index: Path, candidate: IndexVersion, head: IndexVersion | None, passed: dict[str, ShardManifest]
) -> None:
    """Hold what is new against its digests; what the head names passed this gate when it was published."""
    passed |= {shard.sha: shard for shard in head.shards} if head else {}
    for shard, tombstones in zip(candidate.shards, candidate.tombstones, strict=True):
        if passed.get(shard.sha) != shard:
            verify_files(index / "shards" / shard.sha, shard.files)
            passed[shard.sha] = shard
        if tombstones is not None:
            load_tombstones(index, shard, tombstones)
    load_takedowns(index, candidate)
    bundle = Bundle.load(
        index / "bundles" / candidate.bundle_digest,
        verify=head is None or head.bundle_digest != candidate.bundle_digest,
    )
    if bundle.digest != candidate.bundle_digest:
        raise PublicationError(f"the bundle in {index} is not {candidate.bundle_digest}; build the index again")


def _check_shrink(current: IndexVersion, candidate: IndexVersion, max_shrink: float) -> None:
    lost = current.documents - candidate.documents
    if lost > max_shrink * current.documents:
        raise PublicationError(
            f"version {candidate.sha[:12]} has {candidate.documents} documents, the current one {current.documents}: "
            f"more than index.max_shrink={max_shrink} would vanish; look at the table, or raise index.max_shrink"
        )


def _check_takedowns(index: Path, current: IndexVersion, candidate: IndexVersion) -> None:
    lost = set(load_takedowns(index, current)) - set(load_takedowns(index, candidate))
    if lost:
        raise PublicationError(
            f"version {candidate.sha[:12]} would bring back {len(lost)} documents that were taken down; build it again"
        )
