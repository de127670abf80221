"""Find files that an increment reads again, because a quarantined duplicate of theirs becomes the document of its id.

That happens when the file of the document was removed or changed, and when the files are listed in another order. Files
without such a row are not read again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.cells.batches import ENCODER_REASONS
from lsr_prod.encoding.cells.duplicates import Rule, SourceOrder
from lsr_prod.encoding.plans.increment import FileChanges
from lsr_prod.storage import Store
from lsr_prod.tables import Table, TableFile, open_table
from lsr_prod.tables.live_rows import live_batches
from lsr_prod.tables.quarantine import DUPLICATE, read_part

Result = TypeVar("Result")
Run = Callable[[Callable[..., Any], Any, Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Calls a function with a shared argument and with each tuple of further arguments, and returns the results."""

_GROUP = 64  # parts per call
_BATCH_ROWS = 65536
_OWNERS = ["doc_id", "source_file"]


@dataclass(frozen=True, slots=True)
class _Duplicates:
    """Quarantined duplicates of kept files.

    Attributes:
        rows: doc_id (large_string) and duplicate (int64, key of its file), each pair once.
        rule: ``encode.on_duplicate``.
        changes: of the list of files.
    """

    rows: pa.Table
    rule: Rule
    changes: FileChanges


def run_here(function: Callable[..., Result], shared: Any, items: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
    """Run the calls in this process, one after the other."""
    return (function(shared, *item) for item in items)


def find_returning_files(
    table: Table, changes: FileChanges, *, quarantine: Store, rule: Rule, run: Run = run_here
) -> frozenset[int]:
    """Return the keys of kept files with a quarantined duplicate that becomes a document.

    The driver holds the ids of the quarantined duplicates of kept files, about 100 bytes each. If there is one, the
    columns of ids and files of the whole table are read.
    """
    snapshot = open_table(quarantine)
    if snapshot is None or rule == "error":
        return frozenset()
    bad = pa.concat_tables([_BAD.empty_table(), *run(_bad_rows, quarantine, _groups(snapshot.files()))])
    are_duplicates = pc.equal(bad["reason"], DUPLICATE)
    known = bad.filter(pc.and_(are_duplicates, pc.is_in(bad["source_file"], value_set=changes.kept)))
    rows = known.select(_OWNERS).rename_columns(["doc_id", "duplicate"]).group_by(["doc_id", "duplicate"]).aggregate([])
    if not rows.num_rows:
        return frozenset()
    duplicates = _Duplicates(rows, rule, changes)
    # A row that the model failed on is no document, but the other rows of its id were quarantined too.
    found = _taking_over(duplicates, bad.filter(pc.invert(are_duplicates)).select(_OWNERS))
    calls = [(table.store, files) for (files,) in _groups(table.files())]
    return found.union(*run(_taking_over_from, duplicates, calls))


_BAD = pa.schema([("reason", pa.large_string()), ("doc_id", pa.large_string()), ("source_file", pa.int64())])


def _bad_rows(quarantine: Store, files: Sequence[TableFile]) -> pa.Table:
    """Return duplicates, and rows that the model failed on (``_BAD``)."""
    found = [_BAD.empty_table()]
    reasons = pa.array([DUPLICATE, *sorted(ENCODER_REASONS)], pa.large_string())
    for file in files:
        rows = read_part(quarantine, file.path, _BAD.names).select(_BAD.names).cast(_BAD)
        found.append(rows.filter(pc.and_(pc.is_in(rows["reason"], value_set=reasons), rows["doc_id"].is_valid())))
    return pa.concat_tables(found)


def _taking_over_from(duplicates: _Duplicates, store: Store, files: Sequence[TableFile]) -> frozenset[int]:
    """Return the files with a duplicate that takes the place of a document of some parts."""
    found: frozenset[int] = frozenset()
    for file in files:
        for batch in live_batches(store, file, _OWNERS, _BATCH_ROWS):
            owners = pa.Table.from_batches([batch]).cast(_BAD.remove(0))
            found |= _taking_over(duplicates, owners)
    return found


def _taking_over(duplicates: _Duplicates, owners: pa.Table) -> frozenset[int]:
    """Return the files with a duplicate that takes the place of some rows."""
    changes, order = duplicates.changes, SourceOrder(duplicates.rule, duplicates.changes.present)
    if not changes.reordered:
        owners = owners.filter(pc.is_in(owners["source_file"], value_set=changes.removed))
    owners = owners.filter(pc.is_in(owners["doc_id"], value_set=duplicates.rows["doc_id"].combine_chunks()))
    pairs = owners.join(duplicates.rows, "doc_id", join_type="inner")
    leave = pc.is_in(pairs["source_file"], value_set=changes.removed)
    stay = pc.and_not(pc.is_in(pairs["source_file"], value_set=changes.present), leave)
    found = {*pairs["duplicate"].filter(leave).to_pylist()}
    left = pairs.filter(stay).combine_chunks()
    wins = order.takes_over(*(left[name].combine_chunks() for name in ("duplicate", "source_file")))
    return frozenset(found | {*left["duplicate"].filter(wins).to_pylist()})


def _groups(files: Sequence[TableFile]) -> list[tuple[Sequence[TableFile]]]:
    return [(files[start : start + _GROUP],) for start in range(0, len(files), _GROUP)]
