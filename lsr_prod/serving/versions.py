"""Open versions of a replica: the two that were used last."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.formats.publication import Publication
from lsr_prod.search.location import locate
from lsr_prod.search.opening.index import open_version
from lsr_prod.search.snapshot import Snapshot

_HELD = 2  # the current version, and the previous one for queries that started with it
_MANY = 1 << 31


@dataclass(frozen=True, slots=True)
class Pin:
    """The version that a query reads on all replicas.

    Attributes:
        publication: number of a publication of the version.
        version: its sha256.
    """

    publication: int
    version: str


def shards_of_group(group: int, groups: int) -> range:
    """Return the shard numbers of a group, for any number of shards."""
    return range(group, _MANY, groups)


class Versions:
    """Open snapshots of one shard group. Safe to share between threads."""

    def __init__(self, index: str | Path, group: int, groups: int, options: Mapping[str, str] | None = None) -> None:
        self._index = locate(index, None, None, options)
        self._shards = shards_of_group(group, groups)
        self._held: OrderedDict[str, Snapshot] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.follow()

    def get(self, pin: Pin) -> Snapshot:
        """Return the version of a pin; open it if it is published, in place of the least recently used version.

        Queries that read the replaced version finish undisturbed.
        """
        return self._find(pin.version) or self._open(self._index.read_publication(pin.publication), pin.version)

    def follow(self) -> bool:
        """Open the version of the current publication; return False if it was open."""
        while True:
            latest = self._index.current_publication()
            with self._lock:
                if latest.version in self._held:
                    return False
            try:
                self._open(latest, latest.version)
            except ArtifactError:
                if self._index.current_publication().number == latest.number:
                    raise
                continue  # superseded and deleted before it was open
            return True

    @property
    def held(self) -> list[str]:
        """Digests of the open versions, the most recently used last."""
        with self._lock:
            return list(self._held)

    @property
    def last(self) -> Snapshot:
        """The most recently used version."""
        with self._lock:
            return next(reversed(self._held.values()))

    def _find(self, version: str) -> Snapshot | None:
        with self._lock:
            found = self._held.get(version)
            if found is not None:
                self._held.move_to_end(version)
            return found

    def _open(self, publication: Publication, version: str) -> Snapshot:
        if publication.version != version:
            raise PublicationError(
                f"publication {publication.number} of the index is version {publication.version[:12]}, not "
                f"{version[:12]}; router and replicas must serve the same index"
            )
        with self._opening:  # one thread opens, the others wait
            found = self._find(version)
            if found is not None:
                return found
            before = self.last if self._held else None
            opened = open_version(self._index, publication, "lazy", before=before, shards=self._shards)
            with self._lock:
                self._held[version] = opened
                while len(self._held) > _HELD:
                    self._held.popitem(last=False)
            return opened
