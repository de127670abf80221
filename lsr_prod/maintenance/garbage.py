"""Files that nothing needs, by kind, and their deletion."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lsr_prod.storage import Store
from lsr_prod.storage.local import Entry
from lsr_prod.storage.threads import in_threads

KINDS = (
    "markers",
    "plan_records",
    "parts",
    "deletion_vectors",
    "drafts",
    "plan_lists",
    "epochs",
    "successors",
    "totals",
    "log",
)
"""Kinds of files, in the order of their deletion.

A marker goes before any part, so that none names a deleted part. The record of a plan goes before its links
(``successors.link_successor``).
"""

_REUSED = ("parts", "deletion_vectors", "drafts")  # a running attempt may reuse or complete such a file


@dataclass(frozen=True, slots=True)
class Garbage:
    """Files that a vacuum deletes.

    Attributes:
        kept: number of parts and files of deletion vectors that a kept version names.
        kinds: kind -> files.
    """

    kept: int
    kinds: Mapping[str, Sequence[Entry]] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All files, in the order of their deletion."""
        return tuple(entry for kind in KINDS for entry in self.kinds.get(kind, ()))

    @property
    def size(self) -> int:
        """Total bytes of the files."""
        return sum(entry.size for entry in self.entries)

    def counts(self) -> dict[str, int]:
        """Return the number of files of each kind that has some; the kinds of files of plans are added up."""
        counts = Counter({kind: len(files) for kind, files in self.kinds.items()})
        counts["plans"] = counts.pop("plan_records", 0) + counts.pop("plan_lists", 0)
        return {kind: number for kind, number in sorted(counts.items()) if number}


def delete_garbage(store: Store, garbage: Garbage) -> None:
    """Delete the files: parts, deletion vectors and drafts in threads, the others in groups.

    One of the former is deleted only if it was not written or touched since it was listed.
    """

    def delete_if_unchanged(listed: Entry) -> None:
        current = store.entry(listed.name)
        if current is not None and current.modified == listed.modified:  # otherwise an attempt has reused it
            store.delete(listed.name)

    for kind in KINDS:
        files: Collection[Entry] = garbage.kinds.get(kind, ())
        if kind in _REUSED:
            in_threads(delete_if_unchanged, files)
        else:
            store.delete_all([entry.name for entry in files])
