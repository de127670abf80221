"""Where an index lies: a local folder, or an object store with a cache of its versions on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lsr_prod.errors import QueryError
from lsr_prod.formats.publication import Publication
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.publications import current_publication

if TYPE_CHECKING:
    from lsr_prod.storage.node_cache import NodeCache

__all__ = ["LocalIndex", "RemoteIndex", "locate"]


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """An index folder; its versions are opened where they lie."""

    folder: Path

    def head(self) -> Publication:
        """The current publication.

        Raises:
            PublicationError: nothing is published there.
        """
        return current_publication(self.folder)

    def fetch(self) -> tuple[Path, Publication]:
        """The folder that has the current version, and its publication."""
        return self.folder, self.head()

    def release(self, folder: Path) -> None:
        """Nobody reads the version in ``folder`` any more: a local index keeps it."""


@dataclass(frozen=True, slots=True)
class RemoteIndex:
    """An index in an object store; its current version is fetched into a cache.

    Attributes:
        store: the index.
        cache: on a local disk.
    """

    store: Store
    cache: "NodeCache"

    def head(self) -> Publication:
        """The current publication; nothing else is fetched."""
        return current_publication(self.store)

    def fetch(self) -> tuple[Path, Publication]:
        """The folder that has the current version, and its publication; what is not in the cache is fetched."""
        from lsr_prod.storage.index_cache import fetch_current_version

        return fetch_current_version(self.cache, self.store)

    def release(self, folder: Path) -> None:
        """Nobody reads the version in ``folder`` any more: its place may be given to others."""
        self.cache.release(folder)


def locate(
    index: str | Path, cache: str | Path | None, cache_bytes: int | None, options: Mapping[str, str] | None
) -> LocalIndex | RemoteIndex:
    """The place that a path or a URI names.

    Args:
        index: folder, or s3://, gs:// or az:// URI.
        cache: folder for the versions of a remote index.
        cache_bytes: quota of the cache.
        options: of the object store.

    Raises:
        QueryError: a remote index without a cache.
        MissingExtraError: obstore is not installed.
    """
    if not is_remote(str(index)):
        return LocalIndex(Path(index).absolute())
    if cache is None:
        raise QueryError(f"{index} is remote; give cache, a folder on a local disk for its versions")
    from lsr_prod.storage.node_cache import NodeCache

    return RemoteIndex(Store(str(index), dict(options or {})), NodeCache(cache, cache_bytes))
