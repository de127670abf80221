"""Findings of an audit: sums over its partitions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lsr_prod.operations.audit.compare import EXAMPLES, Found
from lsr_prod.operations.audit.examples import Example, Place


@dataclass(frozen=True, slots=True)
class Audit:
    """Findings of an audit. Counts are of ids unless stated otherwise.

    Attributes:
        documents: ids of valid rows of the source.
        missing: documents that the table does not have, and that the quarantine does not explain.
        removed: ids of the table that the source does not have.
        outdated: ids whose text or stored fields differ in the table from the row that has to be the document.
        doubled: ids with more than one row in the table.
        unread: files of the source that cannot be read to their end.
        unread_bytes: bytes that were not read, at most.
        quarantined: ids of the source without a valid row, or on which the model failed.
        bad_rows: rows of the source without a readable id.
        repeated: ids with more than one valid row in the source.
        taken_down: documents of the table that were taken down and that the index hides.
        index_missing: ids of the table that the index does not have; None: no index is compared.
        index_stale: ids of the index that the table does not have.
        index_doubled: ids with more than one document in the index.
        exposed: ids that were taken down, and that the index does not hide.
        files: files of the source.
        new_files: files of the source of which the table has no row: they came or changed after the last encode job, or
            have no document.
        missing_in_new_files: missing documents of these files.
        clipped_share: share of the weights with the largest impact, to which heavier ones are clipped; None: unknown.
        table_version: version of the table that was compared.
        index_table_version: version of the table that the index was built from; None: no index is compared.
        index_compared: version of the table that the index was compared with; another one than ``index_table_version``
            if files of that one were deleted.
        share: one of how many ids was compared.
        passes: how often the source was read.
        record_bytes: bytes of all records.
        seconds: duration.
        examples: kind of finding -> some documents.
    """

    documents: int
    missing: int
    removed: int
    outdated: int
    doubled: int
    unread: int
    unread_bytes: int
    quarantined: int
    bad_rows: int
    repeated: int
    taken_down: int
    index_missing: int | None
    index_stale: int | None
    index_doubled: int | None
    exposed: int | None
    files: int
    new_files: int
    missing_in_new_files: int
    clipped_share: float | None
    table_version: int
    index_table_version: int | None
    index_compared: int | None
    share: int
    passes: int
    record_bytes: int
    seconds: float
    examples: Mapping[str, list[Example]]

    @property
    def stale(self) -> int:
        """Ids of the table that are ``removed`` or ``outdated``."""
        return self.removed + self.outdated

    @property
    def lost(self) -> int:
        """Ids, and files that cannot be read, with a finding that must not be."""
        of_index = (self.index_missing, self.index_stale, self.index_doubled, self.exposed)
        return self.missing + self.stale + self.doubled + self.unread + sum(count or 0 for count in of_index)


@dataclass(slots=True)
class Sums:
    """Sums over partitions.

    Attributes:
        counts: kind of finding -> ids.
        places: kind of finding -> places of some examples.
        missing_files: number of a source file -> missing documents that are in it.
        source_files: keys of the source files that the rows of the table name.
        record_bytes: bytes of all records.
    """

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[Place]] = field(default_factory=dict)
    missing_files: Counter[int] = field(default_factory=Counter)
    source_files: set[int] = field(default_factory=set)
    record_bytes: int = 0

    def add(self, found: Found) -> None:
        """Add a partition."""
        self.counts.update(found.counts)
        self.missing_files.update(found.missing_files)
        self.source_files.update(found.source_files.tolist())
        self.record_bytes += found.record_bytes
        for name, places in found.examples.items():
            mine = self.places.setdefault(name, [])
            mine += places[: EXAMPLES - len(mine)]
