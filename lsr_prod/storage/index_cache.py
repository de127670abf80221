"""Index versions of object stores in the node cache, as index folders that readers map."""

import hashlib
from pathlib import Path

from lsr_prod.errors import StorageError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import record_bytes
from lsr_prod.formats.index import SHARD_FILE
from lsr_prod.formats.publication import Publication, publication_name
from lsr_prod.storage.drafts import create_file
from lsr_prod.storage.index_versions import read_bundle, read_version, version_files
from lsr_prod.storage.node_cache import Contents, NodeCache
from lsr_prod.storage.publications import current_publication
from lsr_prod.storage.store import Store, is_remote

__all__ = ["fetch_current_version"]

_REMEDY = "upload the version again, or publish another version"


def fetch_current_version(cache: NodeCache, index: Store, *, verify: bool = False) -> tuple[Path, Publication]:
    """Return the current version as a local index folder, which stays in the cache until ``cache.release``.

    A local index is not copied.

    Args:
        cache: the node cache.
        index: the index.
        verify: compare every cached file with its sha256, and fetch damaged ones again.

    Returns:
        The index folder, and the publication that makes its version current.

    Raises:
        PublicationError: nothing is published.
        ArtifactError: the version is damaged; nothing of the damage is kept.
        StorageError: the version does not fit into the cache, or the object store or the disk fails.
        MissingExtraError: the index is remote and obstore is not installed.
    """
    publication = current_publication(index)
    if not is_remote(index.uri):
        return Path(index.location), publication
    source = hashlib.sha256(index.uri.rstrip("/").encode()).hexdigest()[:16]
    place = cache.fetch(source, publication.version, lambda: _contents(index, publication.version)).folder
    try:
        if verify:
            cache.repair(place, _contents(index, publication.version))
        # The folder is an index with the publications that were current when it was fetched.
        name = publication_name(publication.number)
        create_file(place / "publications" / name, (record_bytes(publication.to_json()),))
    except BaseException as error:
        cache.release(place)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError(f"the cache {place} cannot be used ({error}); fix or free the disk") from error
        raise
    return place, publication


def _contents(index: Store, sha: str) -> Contents:
    version = read_version(index, sha)
    bundle = read_bundle(index, version.bundle_digest)
    manifests = {
        f"bundles/{version.bundle_digest}/{BUNDLE_FILE}": bundle.content,
        f"versions/{sha}.json": record_bytes(version.to_json()),
        **{f"shards/{shard.sha}/{SHARD_FILE}": record_bytes(shard.to_json()) for shard in version.shards},
    }
    return Contents(index, version_files(version, bundle), _REMEDY, manifests)
