"""Index versions of object stores in the node cache, as index folders that readers map."""

import hashlib
from collections.abc import Container
from pathlib import Path

from lsr_prod.errors import StorageError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest, record_bytes
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.formats.publication import Publication, publication_name
from lsr_prod.formats.shard import TEXT_TERMS_FILE
from lsr_prod.storage.drafts import create_file
from lsr_prod.storage.index_versions import read_bundle, read_version, version_files
from lsr_prod.storage.location import is_remote
from lsr_prod.storage.node_cache import Contents, NodeCache
from lsr_prod.storage.publications import current_publication
from lsr_prod.storage.store import Store

_REMEDY = "run lsr-prod index build, or publish another version"


def fetch_current_version(cache: NodeCache, index: Store, *, verify: bool = False) -> tuple[Path, Publication]:
    """Return the current version as a local index folder, and its publication; see ``fetch_version``."""
    publication = current_publication(index)
    return fetch_version(cache, index, publication, verify=verify), publication


def fetch_version(
    cache: NodeCache,
    index: Store,
    publication: Publication,
    *,
    shards: Container[int] | None = None,
    verify: bool = False,
) -> Path:
    """Return a version as a local index folder, which stays in the cache until ``cache.release``.

    A local index is not copied.

    Returns:
        The index folder; of shards that are not selected it has the term counts only.
    """
    if not is_remote(index.uri):
        return Path(index.location)
    selection = index.uri.rstrip("/") if shards is None else f"{index.uri.rstrip('/')} {shards!r}"
    source = hashlib.sha256(selection.encode()).hexdigest()[:16]
    place = cache.fetch(source, publication.version, lambda: _contents(index, publication.version, shards)).folder
    if not cache.writable:
        return place
    try:
        if verify:
            cache.repair(place, _contents(index, publication.version, shards))
        # The folder is an index with the publications for which it was fetched.
        name = publication_name(publication.number)
        create_file(place / "publications" / name, (record_bytes(publication.to_json()),))
    except BaseException as error:
        cache.release(place)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError(f"the cache {place} cannot be used ({error}); fix or free the disk") from error
        raise
    return place


def _contents(index: Store, sha: str, shards: Container[int] | None) -> Contents:
    version = read_version(index, sha)
    bundle = read_bundle(index, version.bundle_digest)
    manifests = {
        f"bundles/{version.bundle_digest}/{BUNDLE_FILE}": bundle.content,
        f"versions/{sha}.json": record_bytes(version.to_json()),
        **{f"shards/{shard.sha}/{SHARD_FILE}": record_bytes(shard.to_json()) for shard in version.shards},
    }
    files = version_files(version, bundle)
    return Contents(index, files if shards is None else _selected(version, files, shards), _REMEDY, manifests)


def _selected(version: IndexVersion, files: tuple[FileDigest, ...], shards: Container[int]) -> tuple[FileDigest, ...]:
    """Return the files without those that only readers of other shards need; all readers weigh terms alike."""
    wanted = {shard.sha for number, shard in enumerate(version.shards) if number in shards}
    return tuple(
        file
        for file in files
        if not file.path.startswith("shards/")
        or file.path.split("/")[1] in wanted
        or file.path.endswith(f"/{TEXT_TERMS_FILE}")
    )
