"""Location of an index: a local folder, or an object store with a cache of its versions on this machine."""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import QueryError
from lsr_prod.formats.publication import Publication
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.location import location_problem, path_problem
from lsr_prod.storage.publications import current_publication, read_publication
from lsr_prod.storage.version_locks import lock_version

if TYPE_CHECKING:
    from lsr_prod.storage.node_cache import NodeCache

_NUMBERED = re.compile(r"(.+)@([0-9]{1,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """Index folder with a version that is not deleted while it is open."""

    path: Path  # the folder
    release: Callable[[], None]  # allows that the version is deleted; called once


def _nothing() -> None:
    """Release a version that could not be locked."""


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """An index folder; its versions are opened in place."""

    folder: Path

    def current_publication(self) -> Publication:
        """Return the current publication."""
        return current_publication(self.folder)

    def read_publication(self, number: int) -> Publication:
        """Return a publication by its number."""
        return read_publication(self.folder, number)

    def fetch(
        self,
        publication: Publication,
        *,
        shards: Collection[int] | None = None,  # noqa: ARG002 - as RemoteIndex
        verify: bool = False,  # noqa: ARG002
    ) -> OpenFolder:
        """Return the folder, which has all versions; that of the publication is locked against retention."""
        lock = lock_version(self.folder, publication.version)
        return OpenFolder(self.folder, partial(os.close, lock) if lock is not None else _nothing)


@dataclass(frozen=True, slots=True)
class RemoteIndex:
    """An index in an object store; its current version is fetched into a cache."""

    store: Store  # the index in the object store
    cache: "NodeCache"  # cache on a local disk

    def current_publication(self) -> Publication:
        """Return the current publication; nothing else is fetched."""
        return current_publication(self.store)

    def read_publication(self, number: int) -> Publication:
        """Return a publication by its number; nothing else is fetched."""
        return read_publication(self.store, number)

    def fetch(
        self, publication: Publication, *, shards: Collection[int] | None = None, verify: bool = False
    ) -> OpenFolder:
        """Return a folder with the version of a publication; files missing from the cache are fetched."""
        from lsr_prod.storage.index_versions import fetch_version

        folder = fetch_version(self.cache, self.store, publication, shards=shards, verify=verify)
        return OpenFolder(folder, partial(self.cache.release, folder))


def locate(
    index: str | Path, cache: str | Path | None, cache_bytes: int | None, options: Mapping[str, str] | None
) -> LocalIndex | RemoteIndex:
    """Return the location that a path or a URI names."""
    if (problem := location_problem(str(index))) is not None:
        raise QueryError(f"the index {without_credentials(str(index))} cannot be opened: {problem}")
    if not is_remote(str(index)):
        return LocalIndex(Path(index).absolute())
    if cache is not None and (problem := path_problem(str(cache))) is not None:
        raise QueryError(f"the cache {without_credentials(str(cache))} cannot be used: {problem}")
    from lsr_prod.storage.artifacts import make_private, user_cache, user_quota
    from lsr_prod.storage.node_cache import NodeCache

    if cache is None:
        cache, cache_bytes = user_cache(), user_quota() if cache_bytes is None else cache_bytes
        make_private(cache)
    return RemoteIndex(Store(str(index), dict(options or {})), NodeCache(cache, cache_bytes))


def split_publication(place: str) -> tuple[str, int | None]:
    """Return the index and the number of ``INDEX@NUMBER``, a publication of an index; None: ``place`` has no number."""
    found = _NUMBERED.fullmatch(place)
    return (place, None) if found is None else (found[1], int(found[2]))
