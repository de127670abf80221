"""The publications of an index, with what changed from one to the next."""

from dataclasses import dataclass
from typing import Any

from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.pin import PublicationPin
from lsr_prod.formats.publication import Publication
from lsr_prod.operations.publications.difference import Difference, compare_versions, try_version, version_bytes
from lsr_prod.storage import Store
from lsr_prod.storage.pins import read_pins
from lsr_prod.storage.publications import publication_numbers, read_publication
from lsr_prod.storage.threads import in_threads


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A publication and its version.

    Attributes:
        publication: the publication.
        current: whether readers use it.
        pin: its pin; None: it is not pinned.
        version: the version; None: it cannot be read.
        problem: why the version cannot be read; "" if it can.
        difference: what changed since the publication before; None: there is none, or it cannot be read.
    """

    publication: Publication
    current: bool
    pin: PublicationPin | None
    version: IndexVersion | None
    problem: str
    difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` prints."""
        version = self.version
        facts: dict[str, Any] = {}
        if version is not None:
            facts = {
                "documents": version.documents,
                "shards": len(version.shards),
                "bytes": version_bytes(version),
                "bundle_digest": version.bundle_digest,
                "table_uri": version.table_uri,
                "table_version": version.table_version,
            }
        return {
            **self.publication.to_json(),
            "current": self.current,
            "pin": self.pin.to_json() if self.pin else None,
            **facts,
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
