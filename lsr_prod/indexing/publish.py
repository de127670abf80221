"""Make a version current, through gates; make an older one current again.

A publication is an object that is created only if it is absent: of two writers, one wins each number, and the other
decides again from the new head. An index in a folder and one in an object store are published alike.
"""

import logging
from datetime import UTC, datetime
from pathlib import Path

from lsr_prod.errors import ArtefactError, PublicationError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import IndexVersion, Publication, publication_name
from lsr_prod.index_store import check_files, read_head, read_publication, read_version
from lsr_prod.storage import Store

__all__ = ["publish", "rollback"]

log = logging.getLogger(__name__)


def publish(index: Path | Store, version: str, *, max_shrink: float = 1.0, note: str = "") -> Publication:
    """Publish a version after its gates; the version that is already current is left as it is.

    Gates: every file of the version is there, in a folder with its recorded sha256, in an object store with its size;
    the version does not lose more than the share ``max_shrink`` of the current version's documents.

    Args:
        index: the index, a folder or a store.
        version: sha256 of a version of it.
        max_shrink: 0..1; 1 publishes over a current version that cannot be read, too.
        note: kept in the publication, for people.

    Returns:
        The publication that makes ``version`` current.

    Raises:
        PublicationError: a gate refuses.
        ArtefactError: a file is missing or damaged.
    """
    store = _store(index)
    candidate = read_version(store, version)
    check_files(store, candidate)
    while True:
        head = read_head(store)
        if head is not None and head.version == version:
            return head
        if head is not None and max_shrink < 1:
            _check_shrink(_current(store, head), candidate, max_shrink)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        publication = Publication(head.number + 1 if head else 1, version, now, note)
        name = f"publications/{publication_name(publication.number)}"
        # A refused number means that the head has moved on: decide again from there.
        if store.put_new(name, canonical_json(publication.to_json()) + b"\n"):
            log.info("published", extra={"fields": {**publication.to_json(), "index": store.uri}})
            return publication


def rollback(index: Path | Store, number: int) -> Publication:
    """Publish the version of publication ``number`` again.

    Raises:
        PublicationError: there is no such publication.
        ArtefactError: a file of that version is missing or damaged.
    """
    version = read_publication(_store(index), number).version
    return publish(index, version, note=f"rollback to {number}")


def _store(index: Path | Store) -> Store:
    return index if isinstance(index, Store) else Store(str(index))


def _current(store: Store, head: Publication) -> IndexVersion:
    try:
        return read_version(store, head.version)
    except ArtefactError as error:
        raise PublicationError(
            f"publication {head.number} cannot be compared with ({error}); index.max_shrink=1 publishes without that"
        ) from error


def _check_shrink(current: IndexVersion, candidate: IndexVersion, max_shrink: float) -> None:
    lost = current.documents - candidate.documents
    if lost > max_shrink * current.documents:
        raise PublicationError(
            f"version {candidate.sha[:12]} has {candidate.documents} documents, the current one {current.documents}: "
            f"more than index.max_shrink={max_shrink} would vanish; look at the table, or raise index.max_shrink"
        )
