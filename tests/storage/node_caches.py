"""A node cache that counts what it does."""

from collections.abc import Callable
from pathlib import Path

from lsr_prod.storage import Store
from lsr_prod.storage.cache_folder import artifacts_in, files_in
from lsr_prod.storage.formats.digests import FileDigest
from lsr_prod.storage.formats.index_format import Publication
from lsr_prod.storage.index_versions import fetch_version
from lsr_prod.storage.node_cache import Cached, Contents, NodeCache
from lsr_prod.storage.publications import current_publication


def fetch_current_version(cache: NodeCache, index: Store) -> tuple[Path, Publication]:
    """Return the current version as a local index folder, and its publication."""
    publication = current_publication(index)
    return fetch_version(cache, index, publication), publication


class CountedCache(NodeCache):
    """Counts fetches that added their artifact, other ones, bytes fetched and evicted artifacts."""

    def __init__(self, folder: str | Path, max_bytes: int | None = None, *, connections: int = 4) -> None:
        super().__init__(folder, max_bytes, connections=connections)
        self._calls: list[str] = []
        self._added: list[Path] = []
        self.bytes_fetched = self.artifacts_evicted = 0

    def fetch(self, source: str, digest: str, read_contents: Callable[[], Contents]) -> Cached:
        self._calls.append(digest)
        return super().fetch(source, digest, read_contents)

    def _add(self, contents: Contents, place: Path) -> tuple[FileDigest, ...]:
        self._added.append(place)
        return super()._add(contents, place)

    def _fetch_missing(self, contents: Contents) -> tuple[tuple[FileDigest, ...], int]:
        before = self.artifacts
        missing, fetched = super()._fetch_missing(contents)
        self.artifacts_evicted += before - self.artifacts
        self.bytes_fetched += fetched
        return missing, fetched

    @property
    def misses(self) -> int:
        return len(self._added)

    @property
    def hits(self) -> int:
        return len(self._calls) - self.misses

    @property
    def artifacts(self) -> int:
        return len(artifacts_in(self._folder))

    @property
    def bytes(self) -> int:
        return sum(files_in(self._folder).values())
