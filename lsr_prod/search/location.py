"""Location of an index: a local folder, or an object store with a cache of its versions on this machine."""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import QueryError
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.artifacts import make_private, user_cache, user_quota
from lsr_prod.storage.formats.publication import Publication
from lsr_prod.storage.index_versions import fetch_version
from lsr_prod.storage.location import location_problem, path_problem
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage.version_locks import lock_version

_NUMBERED = re.compile(r"(.+)@([0-9]{1,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """An index folder, whose versions are opened in place, or an index in an object store, with a cache of them."""

    store: Store  # the index
    cache: NodeCache | None = None  # cache on a local disk; None: the index is a folder

    def fetch(
        self, publication: Publication, *, shards: Collection[int] | None = None, verify: bool = False
    ) -> tuple[Path, Callable[[], None]]:
        """Return a folder with the version of a publication, and what allows that the version is deleted, called once.

        The folder of an index has all versions. Files that are missing from a cache are fetched.
        """
        if self.cache is None:
            folder = Path(self.store.location)
            lock = lock_version(folder, publication.version)
            return folder, (lambda: None) if lock is None else partial(os.close, lock)
        folder = fetch_version(self.cache, self.store, publication, shards=shards, verify=verify)
        return folder, partial(self.cache.release, folder)


def locate(
    index: str | Path, cache: str | Path | None, cache_bytes: int | None, options: Mapping[str, str] | None
) -> IndexLocation:
    """Return the location that a path or a URI names."""
    if (problem := location_problem(str(index))) is not None:
        raise QueryError(f"the index {without_credentials(str(index))} cannot be opened: {problem}")
    if not is_remote(str(index)):
        return IndexLocation(Store(str(Path(index).absolute())))
    if cache is not None and (problem := path_problem(str(cache))) is not None:
        raise QueryError(f"the cache {without_credentials(str(cache))} cannot be used: {problem}")
    if cache is None:
        cache, cache_bytes = user_cache(), user_quota() if cache_bytes is None else cache_bytes
        make_private(cache)
    return IndexLocation(Store(str(index), dict(options or {})), NodeCache(cache, cache_bytes))


def split_publication(place: str) -> tuple[str, int | None]:
    """Return the index and the number of ``INDEX@NUMBER``, a publication of an index; None: ``place`` has no number."""
    found = _NUMBERED.fullmatch(place)
    return (place, None) if found is None else (found[1], int(found[2]))
