"""Choose the parts of a table that are written again: small ones together, and those with many deleted rows."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.tables import TableFile
from lsr_prod.encoding.tables.live_rows import to_files

DOCUMENT_ORDER = ("doc_id",)
"""Order of the rows of a part of the sparse table."""

_DELETED_SHARE = 0.5  # of the rows of a part: from here on it is written again, whatever its size
_ALWAYS_MERGED = 16  # a part below this fraction of the target is merged with smaller ones, however small they are


@dataclass(frozen=True, slots=True)
class Merge:
    """Parts of one partition to write as one, without their deleted rows."""

    partition: Mapping[str, str]  # values of the partition columns
    files: tuple[TableFile, ...]  # two or more parts, or one with deleted rows
    order: tuple[str, ...] = DOCUMENT_ORDER  # columns that the rows of the merged part are sorted by

    @property
    def origin(self) -> str:
        """The parts, each with its deleted rows: a table loses them with the commit, and never has them again."""
        return "\n".join(f"{file.path} {file.deleted.unique_id if file.deleted else ''}" for file in self.files)

    @property
    def deleted(self) -> int:
        """Number of deleted rows of the parts."""
        return sum(file.deleted.rows for file in self.files if file.deleted)


def plan_merges(
    files: pa.Table, target_bytes: int, order: tuple[str, ...] = DOCUMENT_ORDER, *, purge: bool = False
) -> list[Merge]:
    """Group the parts of each partition that are written again, smallest first, into groups of ``target_bytes``.

    These are the parts with less than half of ``target_bytes`` if there are two of them, and parts of which half of the
    rows are deleted. Deleted rows do not count as bytes. A part above 1/16 of ``target_bytes`` is not merged with
    others that have less than half of its bytes together: so a row is written again a few times, not every night.
    """
    by_partition: dict[tuple[tuple[str, str], ...], list[TableFile]] = defaultdict(list)
    for file in to_files(files.filter(pc.or_(pc.less(files["size"], target_bytes / 2), files["deleted"].is_valid()))):
        if _live_bytes(file) < target_bytes / 2 or _is_rewritten(file, purge):
            by_partition[tuple((name, value or "") for name, value in file.partition.items())].append(file)
    return [
        Merge(dict(values), group, order)
        for values, some in by_partition.items()
        for group in _groups(some, target_bytes)
        if len(group) > 1 or (group and _is_rewritten(group[0], purge))
    ]


def _groups(files: list[TableFile], target_bytes: int) -> list[tuple[TableFile, ...]]:
    groups: list[list[TableFile]] = []
    size = 0.0
    for file in sorted(files, key=lambda one: (_live_bytes(one), one.path)):
        if not groups or size + _live_bytes(file) > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += _live_bytes(file)
    return [group for some in groups for group in _without_largest(some, target_bytes / _ALWAYS_MERGED)]


def _without_largest(group: list[TableFile], limit: float) -> list[tuple[TableFile, ...]]:
    """Split off a part with ``limit`` bytes that is more than twice as large as the others together.

    Otherwise every night would write it again for the few rows of that night.
    """
    *others, largest = group
    if _live_bytes(largest) >= max(limit, 2 * sum(map(_live_bytes, others))):
        return [tuple(others), (largest,)]
    return [tuple(group)]


def _is_rewritten(file: TableFile, purge: bool) -> bool:
    if file.deleted is None:
        return False
    return purge or (file.rows is not None and file.deleted.rows >= _DELETED_SHARE * file.rows)


def _live_bytes(file: TableFile) -> float:
    """Return the size of a part without its deleted rows, if rows have about the same size."""
    if not file.rows or file.live_rows is None:
        return file.size
    return file.size * file.live_rows / file.rows
