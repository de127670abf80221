"""The current version of an index, opened; it follows the publications of the index."""

import logging
import threading
import weakref
from collections.abc import Collection, Sequence

from lsr_prod.errors import ArtifactError, SignatureError
from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.publication import Publication
from lsr_prod.search.location import LocalIndex, RemoteIndex
from lsr_prod.search.metrics import Observer
from lsr_prod.search.snapshot import Snapshot, Verify
from lsr_prod.storage.signatures import trusted_keys

__all__ = ["OpenIndex", "open_current", "open_version"]

log = logging.getLogger(__name__)


def open_version(
    location: LocalIndex | RemoteIndex,
    publication: Publication,
    verify: Verify,
    *,
    before: Snapshot | None = None,
    shards: Collection[int] | None = None,
) -> Snapshot:
    """Open the version of a publication; damaged files in the cache of a remote index are fetched again.

    The version is released for deletion when the snapshot is deleted.

    Args:
        location: location of the index.
        publication: a publication of the index.
        verify: as in ``Searcher.open``.
        before: an open version of the index, whose shards are reused.
        shards: numbers of the shards to open; None: all.

    Raises:
        ArtifactError: the version is incomplete, damaged or of another format.
        StorageError: the object store cannot be reached, or the version does not fit into the cache.
    """
    for repair in (False, True):
        folder = location.fetch(publication, shards=shards, verify=repair)
        try:
            # Shards of both versions stay open, unless their files may be deleted with the folder.
            reused = before if before is not None and before.index == folder.path else None
            snapshot = Snapshot(folder.path, publication, verify=verify, before=reused, shards=shards)
        except BaseException as error:
            folder.release()
            if repair or isinstance(location, LocalIndex) or not isinstance(error, ArtifactError):
                raise
        else:
            weakref.finalize(snapshot, folder.release)
            return snapshot
    raise AssertionError


def open_current(
    location: LocalIndex | RemoteIndex,
    verify: Verify,
    *,
    before: Snapshot | None = None,
    shards: Collection[int] | None = None,
) -> Snapshot:
    """Open the version of the current publication as ``open_version`` does; return ``before`` if that is its version.

    If the version is superseded and deleted before it is open, the version that is current then is opened.

    Raises:
        PublicationError: nothing is published.
        ArtifactError: the current version is incomplete, damaged or of another format.
        StorageError: the object store cannot be reached, or the version does not fit into the cache.
        SignatureError: this process trusts keys, and publications were removed or none of the keys signed the current.
    """
    while True:
        publication = location.current_publication()
        if before is not None and publication.number < before.publication.number and trusted_keys():
            raise SignatureError(
                f"the newest publication is {publication.number}, but {before.publication.number} was opened before: "
                "newer publications were removed; restore them, or restart to open the older one"
            )
        if before is not None and publication.version == before.publication.version:
            return before
        try:
            return open_version(location, publication, verify, before=before, shards=shards)
        except ArtifactError:
            if location.current_publication().number == publication.number:
                raise
            log.info("version was superseded while it was opened", extra={"fields": {"version": publication.version}})


class OpenIndex:
    """An index whose current version is open. Safe to share between threads."""

    _shards_opened: Collection[int] | None = None  # numbers of the shards of every version; None: all

    def __init__(
        self, snapshot: Snapshot, location: LocalIndex | RemoteIndex, *, verify: Verify, observer: Observer | None
    ) -> None:
        """Start with an open version.

        Args:
            snapshot: the current version.
            location: location of the index.
            verify: as in ``Searcher.open``; later versions are verified lazily where it is True.
            observer: notified of every version that becomes current.
        """
        self._snapshot = snapshot
        self._location = location
        self._verify: Verify = "lazy" if verify is True else verify
        self._observer = observer
        self._refresh_lock = threading.Lock()

    def refresh(self) -> bool:
        """Open the version of the current publication if it is not open.

        Running queries continue in the version that they started in.

        Returns:
            Whether the version changed.

        Raises:
            ArtifactError: the new version is incomplete or damaged; the open version stays in use.
        """
        with self._refresh_lock:
            before = self._snapshot
            self._snapshot = open_current(self._location, self._verify, before=before, shards=self._shards_opened)
            if self._snapshot is before:
                return False
            self._watch(self._snapshot)
            return True

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
        """Return the number of documents whose postings hold a term.

        Deleted documents count until their shard is merged.

        Args:
            term: a string or an id; a term outside the vocabulary has frequency 0.
        """
        snapshot = self._snapshot
        term_id = snapshot.vocabulary.ids.get(term, -1) if isinstance(term, str) else int(term)
        frequencies = snapshot.document_frequencies
        return int(frequencies[term_id]) if 0 <= term_id < len(frequencies) else 0
