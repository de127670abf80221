"""An index in a folder or an object store, opened at its current version; it follows the publications."""

import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Self

from lsr_prod.errors import ArtifactError, ConfigError, QueryError, SignatureError
from lsr_prod.logs import get_log, without_credentials
from lsr_prod.search import follower, hybrid, observers
from lsr_prod.search.index_snapshot import Snapshot, Verify
from lsr_prod.search.query.filters import shorten
from lsr_prod.storage import (
    Store,
    artifacts,
    index_versions,
    is_remote,
    node_cache,
    publications,
    signatures,
    version_locks,
)
from lsr_prod.storage.formats.index_format import IndexVersion, Publication
from lsr_prod.storage.location import location_problem, path_problem

log = get_log(__name__)

_NUMBERED = re.compile(r"(.+)@([0-9]{1,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """An index folder, whose versions are opened in place, or an index in an object store, with a cache of them."""

    store: Store  # the index
    cache: node_cache.NodeCache | None = None  # cache on a local disk; None: the index is a folder

    def fetch(
        self, publication: Publication, *, shards: Collection[int] | None = None, verify: bool = False
    ) -> tuple[Path, Callable[[], None]]:
        """Return a folder with the version of a publication, and what allows that the version is deleted, called once.

        The folder of an index has all versions. Files that are missing from a cache are fetched.
        """
        if self.cache is None:
            folder = Path(self.store.location)
            lock = version_locks.lock_version(folder, publication.version)
            return folder, (lambda: None) if lock is None else partial(os.close, lock)
        folder = index_versions.fetch_version(self.cache, self.store, publication, shards=shards, verify=verify)
        return folder, partial(self.cache.release, folder)


class OpenIndex:
    """An index whose current version is open. Safe to share between threads."""

    _shards_opened: Collection[int] | None = None  # numbers of the shards of every version; None: all

    def __init__(
        self, snapshot: Snapshot, location: IndexLocation, *, verify: Verify, observer: observers.Observer | None
    ) -> None:
        """Start with an open version."""
        self._opened: Snapshot | None = snapshot
        self._location = location
        self._verify: Verify = "lazy" if verify is True else verify
        self._observer = observer
        self._refresh_lock = threading.Lock()
        self._swap_lock = threading.Lock()
        self._follower: follower.Follower | None = None
        self._damaged = False  # a query found damage in the open version

    @property
    def _snapshot(self) -> Snapshot:
        """The version that the next query reads; ``QueryError`` after ``close``."""
        snapshot = self._opened
        if snapshot is None:
            raise QueryError("this searcher is closed; open another one")
        return snapshot

    def close(self) -> None:
        """Release the index: its files are unmapped when the last running query has returned; later ones raise.

        Does not wait for a refresh that is running, which then ends without an effect.
        """
        with self._swap_lock:
            self._opened = None
            if self._follower is not None:
                self._follower.stop(wait=False)

    def __enter__(self) -> Self:
        """Return this object; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def refresh(self) -> bool:
        """Open the version of the current publication if it is not open, and the bundle of its queries.

        If a query found a damaged file in the cache of a remote index, its version is fetched again and opened anew.

        Running queries continue in the version that they started in.

        Returns:
            Whether the version changed.
        """
        with self._refresh_lock:
            before, shards, number = self._snapshot, self._shards_opened, self.publication.number
            snapshot = open_current(self._location, self._verify, before=before, shards=shards)
            if snapshot is before:
                if before.publication.number != number:
                    self._watch(before)
                if not self._damaged or self._location.cache is None:
                    return False
                self._damaged = False  # one attempt for each damage that a query finds
                snapshot = open_version(self._location, before.publication, self._verify, shards=shards, repair=True)
            self._prepare(snapshot)
            with self._swap_lock:
                if self._opened is None:
                    raise QueryError("this searcher was closed while it opened a new version; open another one")
                self._opened = snapshot
            self._swapped(snapshot)
            self._damaged = False
            if snapshot.version == before.version:
                return False
            self._watch(snapshot)
            return True

    def _prepare(self, snapshot: Snapshot) -> None:
        """Open whatever else queries of a version need, before it becomes current."""

    def _swapped(self, snapshot: Snapshot) -> None:
        """Release what only queries of earlier versions needed."""

    def follow(
        self, seconds: float = 5.0, *, jitter: float = 0.2, on_change: Callable[[Publication], None] | None = None
    ) -> follower.Follower:
        """Call ``refresh`` in the background until this object is closed or forgotten.

        A thread does not survive a fork: call this in the process that searches.

        Returns:
            The follower: ``problem`` is the failure of the last call, for a health check.
        """
        _check_number("seconds", seconds, low=1e-3, high=86_400)
        _check_number("jitter", jitter, low=0, high=1)
        if on_change is not None and not callable(on_change):
            raise ConfigError("on_change", f"{shorten(on_change)} cannot be called", "give a function, or None")
        this = weakref.ref(self)

        def changed() -> None:
            index = this()
            if index is not None and on_change is not None:
                on_change(index.publication)

        with self._swap_lock:
            _ = self._snapshot  # raises if closed
            if self._follower is not None:
                raise QueryError("this searcher follows publications already; close it to end that")
            self._follower = follower.Follower(self.refresh, seconds, jitter=jitter, changed=changed)
            return self._follower

    def _watch(self, snapshot: Snapshot) -> None:
        """Notify the observer of a version."""
        if self._observer is not None:
            publication = snapshot.publication
            self._observer.opened(publication.version, publication.number, snapshot.version.documents)

    @property
    def snapshot(self) -> Snapshot:
        """The version that the next query reads."""
        return self._snapshot

    @property
    def publication(self) -> Publication:
        """The publication of the version."""
        return self._snapshot.publication

    @property
    def version(self) -> IndexVersion:
        """The version: lineage, settings, counts."""
        return self._snapshot.version

    @property
    def documents(self) -> int:
        """Documents that can be found."""
        return self.version.documents

    @property
    def postings(self) -> int:
        """(document, term) pairs, those of deleted documents included."""
        return sum(shard.postings for shard in self.version.shards)

    @property
    def vocabulary(self) -> Sequence[str]:
        """The V terms, by id."""
        return self._snapshot.vocabulary.names

    def document_frequency(self, term: str | int) -> int:
        """Return the number of documents whose postings hold a term; see ``document_frequencies``."""
        return self.document_frequencies([term])[0]

    def document_frequencies(self, terms: Sequence[str | int], *, words: bool = False) -> list[int]:
        """Return for each term the number of documents whose postings hold it; 0 for one that no document has.

        Deleted documents count until their shard is merged.

        Args:
            terms: strings of the output vocabulary, or ids.
            words: the terms are words of the text, which the analyzer of the index makes, for example, their stems. The
                index needs ``index.bm25``.

        Raises:
            QueryError: a term is neither a string nor an id, a term is not one word, or the index has no words.
        """
        snapshot = self._snapshot
        if isinstance(terms, str | bytes) or not isinstance(terms, Sequence):
            raise QueryError(f"terms={shorten(terms)} is not a list; give a list of terms")
        for term in terms:
            if not isinstance(term, str if words else str | Integral) or isinstance(term, bool):
                raise QueryError(f"term {shorten(term)} is not possible; give a string{' or an id' * (not words)}")
        if words:
            return hybrid.count_words(snapshot, snapshot.version, [str(term) for term in terms])
        ids, frequencies = snapshot.vocabulary.ids, snapshot.document_frequencies
        places = (ids.get(term, -1) if isinstance(term, str) else int(term) for term in terms)
        return [int(frequencies[place]) if 0 <= place < len(frequencies) else 0 for place in places]


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
        cache, cache_bytes = artifacts.user_cache(), artifacts.user_quota() if cache_bytes is None else cache_bytes
        artifacts.make_private(cache)
    return IndexLocation(Store(str(index), dict(options or {})), node_cache.NodeCache(cache, cache_bytes))


def split_publication(place: str) -> tuple[str, int | None]:
    """Return the index and the number of ``INDEX@NUMBER``, a publication of an index; None: ``place`` has no number."""
    found = _NUMBERED.fullmatch(place)
    return (place, None) if found is None else (found[1], int(found[2]))


def open_published(location: IndexLocation, number: int | None, verify: Verify) -> Snapshot:
    """Open the version of a publication by its number; None: the current one."""
    if number is None:
        return open_current(location, verify)
    return open_version(location, publications.read_publication(location.store, number), verify)


def open_current(
    location: IndexLocation, verify: Verify, *, before: Snapshot | None = None, shards: Collection[int] | None = None
) -> Snapshot:
    """Open the version of the current publication as ``open_version`` does.

    If that is the version of ``before``, ``before`` is returned, from then on with the current publication.
    If the version is superseded and deleted before it is open, the version that is current then is opened.
    """
    while True:
        publication = publications.current_publication(location.store)
        if before is not None and publication.number < before.publication.number and signatures.trusted_keys():
            raise SignatureError(
                f"the newest publication is {publication.number}, but {before.publication.number} was opened before: "
                "newer publications were removed; restore them, or restart to open the older one"
            )
        if before is not None and publication.version == before.publication.version:
            before.publication = publication  # a rollback may have published its version again
            return before
        try:
            return open_version(location, publication, verify, before=before, shards=shards)
        except ArtifactError:
            if publications.current_publication(location.store).number == publication.number:
                raise
            log.info("version was superseded while it was opened", extra={"fields": {"version": publication.version}})


def open_version(
    location: IndexLocation,
    publication: Publication,
    verify: Verify,
    *,
    before: Snapshot | None = None,
    shards: Collection[int] | None = None,
    repair: bool = False,
) -> Snapshot:
    """Open the version of a publication; damaged files in the cache of a remote index are fetched again.

    The version is released for deletion when the snapshot is deleted.
    """
    for repairing in (True,) if repair else (False, True):
        folder, release = location.fetch(publication, shards=shards, verify=repairing)
        try:
            # Shards of both versions stay open, unless their files may be deleted with the folder.
            reused = before if before is not None and before.index == folder else None
            snapshot = Snapshot(folder, publication, verify=verify, before=reused, shards=shards)
        except BaseException as error:
            release()
            if repairing or location.cache is None or not isinstance(error, ArtifactError):
                raise
        else:
            weakref.finalize(snapshot, release)
            return snapshot
    raise AssertionError


def _check_number(name: str, value: float, *, low: float, high: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(name, f"{shorten(value)} is not possible", f"give a number from {low:g} to {high:g}")
