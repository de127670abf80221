"""Keep the target that readers open in step with the index folder in which versions are derived.

A version is derived, gated and published in the index folder. Then its files and its publication, with the same number,
are copied to the target. Both have one history: a publication of another index is refused, because it could bring
deleted documents back.
"""

import shutil
from pathlib import Path

from lsr_prod.errors import PublicationError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.formats.publication import Publication
from lsr_prod.logs import get_log
from lsr_prod.storage.cache_folder import locked
from lsr_prod.storage.drafts import Draft, copy_tree, create_file
from lsr_prod.storage.index_cache import fetch_current_version
from lsr_prod.storage.index_versions import check_files, read_version, upload_version
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage.publications import (
    create_publication,
    current_publication,
    find_current_publication,
    read_publication,
)
from lsr_prod.storage.store import Store, as_store

log = get_log(__name__)


def upload_current(index: Path, target: Store) -> Publication:
    """Publish the current version of an index folder at the target, unless it is current there already.

    A repeated call resumes an interrupted one. If several run at once, the largest number stays current.
    """
    while True:
        publication = current_publication(index)
        uploaded = find_current_publication(target)
        if uploaded == publication:
            return publication
        if not _same_history(index, publication, target, uploaded):
            continue
        if uploaded is not None and uploaded.number > publication.number:
            return uploaded  # a concurrent run uploaded a later publication
        upload_version(index, publication.version, target)
        check_files(target, read_version(target, publication.version))
        if create_publication(target, publication):
            log.info("publication uploaded", extra={"fields": {"target": target.uri, **publication.to_json()}})


def adopt_current(index: Path, target: Store) -> Publication | None:
    """Copy the current version of the target into the index folder if the folder is new or behind.

    Returns:
        The current publication of the index folder; None: nothing is published anywhere.
    """
    if find_current_publication(target) is None:
        return find_current_publication(index)
    with locked(index / ".adopted.lock"):
        while True:
            here, uploaded = find_current_publication(index), find_current_publication(target)
            if _same_history(index, here, target, uploaded):
                break
        if uploaded is None or (here is not None and here.number >= uploaded.number):
            return here
        return _adopt(index, target)


def _adopt(index: Path, target: Store) -> Publication:
    scratch = index / ".adopted"
    cache = NodeCache(scratch)
    place, publication = fetch_current_version(cache, target)
    _copy(place, index, read_version(place, publication.version), publication)
    cache.close()
    shutil.rmtree(scratch, ignore_errors=True)
    log.info("publication adopted", extra={"fields": {"target": target.uri, **publication.to_json()}})
    return publication


def _same_history(index: Path, here: Publication | None, target: Store, uploaded: Publication | None) -> bool:
    """Return whether the older publication is in the history of the newer; False: ``here`` is no longer current."""
    if here is None or uploaded is None:
        return True
    older = min(here, uploaded, key=lambda publication: publication.number)
    newer = as_store(index) if here.number >= uploaded.number else target
    try:
        same = read_publication(newer, older.number) == older
    except PublicationError:
        # Garbage collection deletes old ones in both places. A folder that is so far behind cannot be compared.
        same = newer is not target
    if same:
        return True
    if find_current_publication(index) != here:
        return False
    raise PublicationError(
        f"publication {older.number} of {target.uri} differs from that of {index}, or is no longer kept: two indexes "
        "are published there, or the folder is far behind; "
        f"delete the publications from {older.number} on in {index} to continue from the uploaded ones, "
        "or set index.publish_to to another place"
    )


def _copy(source: Path, index: Path, version: IndexVersion, publication: Publication) -> None:
    """Copy a version into the index folder, its folders whole or not at all, the publication last."""
    manifests = [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    for name in [*manifests, f"bundles/{version.bundle_digest}/{BUNDLE_FILE}"]:
        there, new = index / name, source / name
        copied = False
        if not there.parent.is_dir():
            with Draft(there.parent) as draft:
                copy_tree(new.parent, draft.folder, link=True)  # the fetched files are on the same disk
                copied = draft.seal()  # False: another build created the folder meanwhile
        if not copied and there.read_bytes() != new.read_bytes():
            raise PublicationError(
                f"{there.parent} was built here too, with other bytes; delete it if nothing reads it, then run again"
            )
    for folder in ("tombstones", "takedowns", "versions"):
        for path in sorted((source / folder).glob("*")):
            create_file(index / folder / path.name, (path.read_bytes(),))
    create_publication(index, publication)
