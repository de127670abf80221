"""Everything that the store of an index keeps: versions with their lineage and size, and why each is kept."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lsr_prod.errors import PublicationError
from lsr_prod.storage import Entry, Store, in_threads, is_remote
from lsr_prod.storage.formats.index_format import IndexVersion, Publication, PublicationPin
from lsr_prod.storage.publications import publication_numbers, read_pins, read_publication
from lsr_prod.storage.version_locks import is_read
from lsr_prod_contrib.publications.difference import Difference, compare_versions, try_version, version_bytes

_VERSION = re.compile(r"versions/([0-9a-f]{64})\.json")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A version of an index."""

    version: str  # its sha256
    modified: float  # time of its last use by a writer, seconds since 1970
    # numbers of the publications of the version; none: it was never published or retention has deleted the publication
    publications: tuple[int, ...]
    state: str  # ``current``, ``published``, ``pinned``, ``read`` (a process has it open), or ``unpublished``
    # documents that can be found; None: the version cannot be read, and so for all that follow
    documents: int | None = None
    shards: int | None = None  # number of its shards
    bytes: int | None = None  # bytes of its shards and lists
    own_bytes: int | None = None  # bytes of the shards that no other version of the catalog has
    bundle_digest: str | None = None  # bundle that encodes its queries and that encoded its documents
    table_uri: str | None = None  # the sparse table that it was built from
    table_version: int | None = None  # version of that table
    problem: str = ""  # why the version cannot be read; "" if it can


@dataclass(frozen=True, slots=True)
class Catalog:
    """All versions of an index, and its size."""

    index: str  # folder or URI of the index
    objects: int  # files of the index
    bytes: int  # their bytes
    versions: tuple[CatalogEntry, ...]  # the versions, the most recently used first

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        return asdict(self)


def read_catalog(index: Store) -> Catalog:
    """Return all versions of an index and why each is kept; one listing, and one request per version.

    Raises:
        PublicationError: the place is no index.
        ArtifactError: a publication or a pin is damaged.
        StorageError: the store fails.
    """
    listed = index.entries()
    found = {match[1]: entry for entry in listed if (match := _VERSION.fullmatch(entry.name))}
    numbers = publication_numbers(index)
    if not found:
        raise PublicationError(f"{index.uri} has no publication and no version; give the folder or URI of an index")
    published: dict[str, list[int]] = {}
    for publication in in_threads(lambda number: read_publication(index, number), numbers):
        published.setdefault(publication.version, []).append(publication.number)
    pinned = {pin.version for pin in read_pins(index)}
    versions = dict(zip(found, in_threads(lambda sha: try_version(index, sha), list(found)), strict=True))
    holders: dict[str, int] = {}
    for version, _ in versions.values():
        for shard in {shard.sha for shard in version.shards} if version else ():
            holders[shard] = holders.get(shard, 0) + 1
    entries = []
    for sha, (version, problem) in versions.items():
        state = _state(index, sha, published.get(sha, []), numbers, pinned)
        entries.append(_entry(found[sha], sha, tuple(published.get(sha, ())), state, version, problem, holders))
    entries.sort(key=lambda entry: entry.modified, reverse=True)
    return Catalog(index.uri, len(listed), sum(entry.size for entry in listed), tuple(entries))


def _state(index: Store, sha: str, own: list[int], numbers: list[int], pinned: set[str]) -> str:
    if numbers and numbers[-1] in own:
        return "current"
    if sha in pinned:
        return "pinned"
    if own:
        return "published"
    return "read" if not is_remote(index.uri) and is_read(Path(index.uri), sha) else "unpublished"


def _entry(
    listed: Entry,
    sha: str,
    publications: tuple[int, ...],
    state: str,
    version: IndexVersion | None,
    problem: str,
    holders: dict[str, int],
) -> CatalogEntry:
    if version is None:
        return CatalogEntry(sha, listed.modified, publications, state, problem=problem)
    own = [file.size for shard in version.shards if holders[shard.sha] == 1 for file in shard.files]
    return CatalogEntry(sha, listed.modified, publications, state, own_bytes=sum(own), **_facts(version))


def _facts(version: IndexVersion) -> dict[str, Any]:
    return {
        "documents": version.documents,
        "shards": len(version.shards),
        "bytes": version_bytes(version),
        "bundle_digest": version.bundle_digest,
        "table_uri": version.table_uri,
        "table_version": version.table_version,
    }


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A publication and its version."""

    publication: Publication  # the publication
    current: bool  # whether readers use it
    pin: PublicationPin | None  # its pin; None: it is not pinned
    version: IndexVersion | None  # the version; None: it cannot be read
    problem: str  # why the version cannot be read; "" if it can
    # what changed since the publication before; None: there is none, or it cannot be read
    difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        return {
            **self.publication.to_json(),
            "current": self.current,
            "pin": self.pin.to_json() if self.pin else None,
            **(_facts(self.version) if self.version else {}),
            "problem": self.problem,
            "difference": self.difference.to_json() if self.difference else None,
        }


def read_history(index: Store, *, last: int | None = None) -> list[HistoryEntry]:
    """Return the publications of an index, newest first.

    Args:
        index: the index.
        last: number of newest publications to return; None: all.

    Raises:
        ArtifactError: a publication or a pin is damaged. A version that cannot be read is a field of its entry.
        StorageError: the store fails.
    """
    numbers = publication_numbers(index)
    shown = numbers if last is None else numbers[-last:]
    wanted = numbers[-len(shown) - 1 :] if shown else []
    publications = in_threads(lambda number: read_publication(index, number), wanted)
    shas = sorted({publication.version for publication in publications})
    versions = dict(zip(shas, in_threads(lambda sha: try_version(index, sha), shas), strict=True))
    pins = {pin.number: pin for pin in read_pins(index)}
    entries = []
    for place, publication in enumerate(publications):
        version, problem = versions[publication.version]
        before = versions[publications[place - 1].version][0] if place else None
        difference = compare_versions(before, version) if before and version else None
        current = publication.number == numbers[-1]
        entries.append(HistoryEntry(publication, current, pins.get(publication.number), version, problem, difference))
    return entries[::-1][: len(shown)]
