"""Make a version current, through gates; make an older one current again.

A publication is a file that is created only if it is absent: of two writers, one wins each number, and the other
decides again from the new head.
"""

import logging
from datetime import UTC, datetime
from pathlib import Path

from lsr_prod.errors import PublicationError
from lsr_prod.formats.bundle import Bundle
from lsr_prod.formats.digest import canonical_json, verify_files
from lsr_prod.formats.index import (
    IndexVersion,
    Publication,
    latest_publication,
    load_publication,
    load_version,
    publication_name,
)
from lsr_prod.storage import Store

__all__ = ["publish", "rollback"]

log = logging.getLogger(__name__)


def publish(index: Path, version: str, *, max_shrink: float = 1.0, note: str = "") -> Publication:
    """Publish a version after its gates; the version that is already current is left as it is.

    Gates: every file of every shard and of the bundle has its recorded sha256; the version does not lose more than the
    share ``max_shrink`` of the current version's documents.

    Args:
        index: the index folder.
        version: sha256 of a version of it.
        max_shrink: 0..1.
        note: kept in the publication, for people.

    Returns:
        The publication that makes ``version`` current.

    Raises:
        PublicationError: a gate refuses.
        ArtefactError: a file is missing or damaged.
    """
    candidate = load_version(index, version)
    for shard in candidate.shards:
        verify_files(index / "shards" / shard.sha, shard.files)
    bundle = Bundle.load(index / "bundles" / candidate.bundle_digest, verify=True)
    if bundle.digest != candidate.bundle_digest:
        raise PublicationError(f"the bundle in {index} is not {candidate.bundle_digest}; build the index again")
    while True:
        head = _head(index)
        if head is not None and head.version == version:
            return head
        if head is not None:
            _check_shrink(load_version(index, head.version), candidate, max_shrink)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        publication = Publication(head.number + 1 if head else 1, version, now, note)
        name = f"publications/{publication_name(publication.number)}"
        # A refused number means that the head has moved on: decide again from there.
        if Store(str(index)).put_new(name, canonical_json(publication.to_json()) + b"\n"):
            log.info("published", extra={"fields": publication.to_json()})
            return publication


def rollback(index: Path, number: int) -> Publication:
    """Publish the version of publication ``number`` again.

    Raises:
        PublicationError: there is no such publication.
        ArtefactError: a file of that version is missing or damaged.
    """
    version = load_publication(index, number).version
    return publish(index, version, note=f"rollback to {number}")


def _head(index: Path) -> Publication | None:
    folder = index / "publications"
    return latest_publication(index) if folder.is_dir() and any(folder.glob("*.json")) else None


def _check_shrink(current: IndexVersion, candidate: IndexVersion, max_shrink: float) -> None:
    lost = current.documents - candidate.documents
    if lost > max_shrink * current.documents:
        raise PublicationError(
            f"version {candidate.sha[:12]} has {candidate.documents} documents, the current one {current.documents}: "
            f"more than index.max_shrink={max_shrink} would vanish; look at the table, or raise index.max_shrink"
        )
