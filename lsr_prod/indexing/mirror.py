"""Keep the place that readers open in step with the index folder that versions are derived in.

A version is derived, gated and published in the index folder, which holds the files that this needs. Its publication is
then copied, number and all, after its files. The history over there is the one here: what comes from another index is
refused, for it would bring back what was deleted.
"""

import logging
import os
import shutil
import uuid
from pathlib import Path

from lsr_prod.errors import PublicationError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import (
    SHARD_FILE,
    IndexVersion,
    Publication,
    latest_publication,
    publication_name,
)
from lsr_prod.indexing.shard import sync_tree
from lsr_prod.indexing.upload import upload_version
from lsr_prod.storage import Store
from lsr_prod.storage.cache_folder import locked
from lsr_prod.storage.index_store import check_files, read_head, read_publication, read_version
from lsr_prod.storage.local import link_new
from lsr_prod.storage.node_cache import IndexCache

__all__ = ["adopt_head", "mirror_head"]

log = logging.getLogger(__name__)


def mirror_head(index: Path, target: Store) -> Publication:
    """Publish at the target what is current in the index; what is current there already is left as it is.

    Run again after a kill, it goes on. Of several that run at once the largest number stays current.

    Args:
        index: the index folder.
        target: an object store, or a folder that becomes an index.

    Raises:
        PublicationError: nothing is published here, or the target follows another index.
        ArtifactError: a file of the version is missing or damaged.
        StorageError: the target fails.
    """
    while True:
        publication = latest_publication(index)
        head = read_head(target)
        if head == publication:
            return publication
        if not _same_history(index, publication, target, head):
            continue
        if head is not None and head.number > publication.number:
            return head  # another run was quicker with what came since
        upload_version(index, publication.version, target)
        check_files(target, read_version(target, publication.version))
        name = f"publications/{publication_name(publication.number)}"
        if target.put_new(name, canonical_json(publication.to_json()) + b"\n"):
            log.info("mirrored", extra={"fields": {"target": target.uri, **publication.to_json()}})


def adopt_head(index: Path, target: Store) -> Publication | None:
    """Take over what is published at the target where it is newer: the folder is new, or another machine was at work.

    Args:
        index: the index folder.
        target: where versions are mirrored to.

    Returns:
        What is current in the index folder from here on; None: nothing is published anywhere.

    Raises:
        PublicationError: the target follows another index.
        ArtifactError: the version is damaged.
        StorageError: the target cannot be reached, or fails.
    """
    if read_head(target) is None:
        return read_head(Store(str(index)))
    with locked(index / ".adopted.lock"):
        while True:
            here, head = read_head(Store(str(index))), read_head(target)
            if _same_history(index, here, target, head):
                break
        if head is None or (here is not None and here.number >= head.number):
            return here
        return _adopt(index, target)


def _adopt(index: Path, target: Store) -> Publication:
    scratch = index / ".adopted"
    cache = IndexCache(scratch)
    place, head = cache.fetch(target.uri, target.options)
    _copy(place, index, read_version(Store(str(place)), head.version), head)
    cache.close()
    shutil.rmtree(scratch, ignore_errors=True)
    log.info("adopted", extra={"fields": {"target": target.uri, **head.to_json()}})
    return head


def _same_history(index: Path, here: Publication | None, target: Store, head: Publication | None) -> bool:
    """Whether the older of two heads stands in the history of the newer; False: ``here`` is no longer the head.

    Raises:
        PublicationError: it does not.
    """
    if here is None or head is None:
        return True
    older = min(here, head, key=lambda one: one.number)
    newer = Store(str(index)) if here.number >= head.number else target
    try:
        same = read_publication(newer, older.number) == older
    except PublicationError:
        same = newer is not target  # old ones are deleted here; there all of them stay
    if same:
        return True
    if read_head(Store(str(index))) != here:
        return False
    raise PublicationError(
        f"publication {older.number} of {target.uri} is not that of {index}: two indexes are published there; "
        f"delete the publications from {older.number} on in {index} to go on from what is published, "
        "or set index.publish_to to another place"
    )


def _copy(source: Path, index: Path, version: IndexVersion, publication: Publication) -> None:
    """Take a version over, its folders whole or not at all, the publication last."""
    for name in [*(f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards), _bundle_file(version)]:
        there, new = index / name, source / name
        if not there.parent.is_dir():
            _copy_folder(new.parent, there.parent)
        elif there.read_bytes() != new.read_bytes():
            raise PublicationError(
                f"{there.parent} was built here too, with other bytes; delete it if nothing reads it, then run again"
            )
    for folder in ("tombstones", "takedowns", "versions"):
        for path in sorted((source / folder).glob("*")):
            link_new(index / folder / path.name, path.read_bytes())
    name = publication_name(publication.number)
    link_new(index / "publications" / name, canonical_json(publication.to_json()) + b"\n")


def _bundle_file(version: IndexVersion) -> str:
    return f"bundles/{version.bundle_digest}/{BUNDLE_FILE}"


def _copy_folder(source: Path, target: Path) -> None:
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        shutil.copytree(source, draft, copy_function=_link_or_copy)
        sync_tree(draft)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)  # what was fetched lies on the same disk
    except OSError:
        shutil.copyfile(source, target)
