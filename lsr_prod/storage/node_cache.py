"""Index versions of object stores, kept in a local folder that any number of processes share.

::

    <cache>/
      lock                              held while versions are added or removed
      files/<sha256>                    every file once, verified while it came; <sha256>.part: the beginning of one
      indexes/<index>/<version>/        an index folder of hard links to those files, opened as any local index
      indexes/<index>/<version>.use     locked by every process that uses the version, touched when one begins to

Every name appears by a rename, whole. The folder must be on a local disk and belong to one user.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lsr_prod.errors import PublicationError, StorageError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest, canonical_json
from lsr_prod.formats.index import SHARD_FILE, IndexVersion, Publication, latest_publication, publication_name
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.cache_folder import draft_of, files_in, locked, make_room, mark_used, versions_in
from lsr_prod.storage.download import fetch_file
from lsr_prod.storage.index_store import BundleManifest, in_threads, read_bundle, read_head, read_version, version_files
from lsr_prod.storage.local import link_new, sync_folder

__all__ = ["CacheStatistics", "IndexCache"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache did for this process, and what its folder holds.

    Attributes:
        hits: fetches whose version was there.
        misses: fetches that added their version.
        files_fetched: files that came from an object store.
        bytes_fetched: bytes that came with them.
        versions_evicted: versions removed to make room.
        versions: versions in the folder now.
        bytes: bytes of files in the folder now.
    """

    hits: int = 0
    misses: int = 0
    files_fetched: int = 0
    bytes_fetched: int = 0
    versions_evicted: int = 0
    versions: int = 0
    bytes: int = 0


class IndexCache:
    """Versions of remote indexes as local folders. Safe to share between threads; processes may share the folder.

    Args:
        folder: on a local disk; made if it is not there.
        max_bytes: quota for the files of all versions; None: the disk is the limit, and no version is ever removed.
        connections: files that are fetched at once; each needs about 25 MiB of memory.
    """

    def __init__(self, folder: str | Path, max_bytes: int | None = None, *, connections: int = 4) -> None:
        self._folder = Path(folder).absolute()
        self._max_bytes = max_bytes
        self._connections = connections
        self._guard = threading.Lock()
        self._marks: dict[Path, list[int]] = {}
        self._counts = CacheStatistics()

    def head(self, uri: str, options: Mapping[str, str] | None = None) -> Publication:
        """The current publication of an index; nothing else is fetched.

        Raises:
            PublicationError: nothing is published there.
            MissingExtraError: the index is remote and obstore is not installed.
        """
        if not is_remote(uri):
            return latest_publication(Path(uri))
        head = read_head(Store(uri, dict(options or {})))
        if head is None:
            raise PublicationError(f"{uri} has no publication; publish one with lsr-prod index and index.publish_to")
        return head

    def fetch(self, uri: str, options: Mapping[str, str] | None = None) -> tuple[Path, Publication]:
        """The current version of an index as a local index folder, which stays until ``release``.

        A local index is not copied. Killed anywhere, it leaves nothing wrong, and the next call goes on.

        Args:
            uri: the index, a folder or the URI of an object store.
            options: options of the object store, as obstore names them.

        Returns:
            The index folder, and the publication that makes its version current.

        Raises:
            PublicationError: nothing is published there.
            ArtifactError: the version is damaged; nothing of the damage is kept.
            StorageError: the version does not fit into the quota or on the disk (nothing was fetched), or the object
                store or the disk fails.
            MissingExtraError: the index is remote and obstore is not installed.
        """
        publication = self.head(uri, options)
        if not is_remote(uri):
            return Path(uri).absolute(), publication
        place = self._place(uri, publication.version)
        try:
            self._use(Store(uri, dict(options or {})), publication.version, place)
            self._record(publication, place)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"the cache {self._folder} cannot be used ({error}); mend or free the disk") from error
        return place, publication

    def release(self, index: Path) -> None:
        """End one use of a folder that ``fetch`` returned; once nobody uses it, it may be removed to make room."""
        with self._guard:
            if marks := self._marks.get(index):
                os.close(marks.pop())

    def close(self) -> None:
        """End every use."""
        with self._guard:
            for marks in self._marks.values():
                while marks:
                    os.close(marks.pop())

    @property
    def statistics(self) -> CacheStatistics:
        """Counts of this process, and a look at the folder."""
        return replace(
            self._counts, versions=len(versions_in(self._folder)), bytes=sum(files_in(self._folder).values())
        )

    def _place(self, uri: str, version: str) -> Path:
        index = hashlib.sha256(uri.rstrip("/").encode()).hexdigest()[:16]
        return self._folder / "indexes" / index / version

    def _use(self, store: Store, sha: str, place: Path) -> None:
        """Mark the version as used, added first if it is not there."""
        if (mark := mark_used(place)) is not None:
            self._keep(place, mark, hits=1)
            return
        version = read_version(store, sha)
        bundle = read_bundle(store, version.bundle_digest)
        with locked(self._folder / "lock"):
            if (mark := mark_used(place)) is not None:  # another was quicker
                self._keep(place, mark, hits=1)
                return
            self._add(store, version, bundle, place)
            mark = mark_used(place)
            assert mark is not None  # versions are removed under the lock
            self._keep(place, mark, misses=1)

    def _add(self, store: Store, version: IndexVersion, bundle: BundleManifest, place: Path) -> None:
        files = version_files(version, bundle)
        room = make_room(self._folder, {file.sha256: file for file in files}, self._max_bytes)
        self._count(versions_evicted=room.evicted)
        start = time.perf_counter()

        def fetch(file: FileDigest) -> int:
            fetched = fetch_file(store, file, self._folder / "files")
            self._count(files_fetched=1, bytes_fetched=fetched)
            return fetched

        fetched = in_threads(fetch, room.missing, self._connections)
        sync_folder(self._folder / "files")
        self._assemble(version, bundle, files, place)
        seconds = round(time.perf_counter() - start, 3)
        fields = {"index": store.uri, "version": place.name, "bytes": fetched, "seconds": seconds}
        log.info("version fetched", extra={"fields": fields})

    def _assemble(
        self, version: IndexVersion, bundle: BundleManifest, files: tuple[FileDigest, ...], place: Path
    ) -> None:
        """The version's folder, whole or not at all."""
        draft = draft_of(place)
        for file in files:
            target = draft / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._folder / "files" / file.sha256, target)
        link_new(draft / "bundles" / version.bundle_digest / BUNDLE_FILE, bundle.content + b"\n")
        for shard in version.shards:
            link_new(draft / "shards" / shard.sha / SHARD_FILE, canonical_json(shard.to_json()) + b"\n")
        link_new(draft / "versions" / f"{version.sha}.json", canonical_json(version.to_json()) + b"\n")
        for folder in [*(path for path in draft.rglob("*") if path.is_dir()), draft]:
            sync_folder(folder)
        draft.rename(place)
        sync_folder(place.parent)

    def _record(self, publication: Publication, place: Path) -> None:
        name = publication_name(publication.number)
        try:
            link_new(place / "publications" / name, canonical_json(publication.to_json()) + b"\n")
        except BaseException:
            self.release(place)
            raise

    def _keep(self, place: Path, mark: int, **counts: int) -> None:
        with self._guard:
            self._marks.setdefault(place, []).append(mark)
        self._count(**counts)

    def _count(self, **counts: int) -> None:
        with self._guard:
            now = {name: getattr(self._counts, name) + added for name, added in counts.items()}
            self._counts = replace(self._counts, **now)
