"""Markers of finished cells: cells that an attempt has encoded are not encoded again by the next one.

A marker contains the receipt of a cell: its result, with parts that are not committed yet. The first marker of a cell
is valid for all attempts: their outputs need not be equal to the bit, but they describe the same rows of the source.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lsr_prod.encoding.commit.committer import check_cell
from lsr_prod.encoding.results import CellOutput, CellResult, Counts, Deletion
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, IncompleteWaveError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.storage import Store
from lsr_prod.tables import Part
from lsr_prod.tables.deletion_vector import DeletionVector, file_of

ReadMarkers = Callable[[Store, Store, Sequence[str]], Iterable[CellResult]]

MARKERS_FOLDER = f"{PROTOCOL_FOLDER}/done"


def mark_finished(table: Store, quarantine: Store, plan: str, wave: int, result: CellResult) -> CellResult:
    """Write the marker of an encoded cell.

    Returns:
        This result; or the result of another attempt that was first, if its parts are complete, it deletes rows of
        the same parts (after a compaction in the meantime it could not be committed), and it follows the same results.
    """
    name = f"{_folder(plan, wave)}/{result.cell}.json"
    data = record_bytes(asdict(result))
    if table.put_new(name, data):
        return result
    earlier = _read(table, quarantine, name)
    if earlier is not None and earlier.counts.rows_in != result.counts.rows_in:
        raise IncompleteWaveError(
            f"wave {wave}, cell {result.cell}: {result.counts.rows_in} rows in this attempt, "
            f"{earlier.counts.rows_in} in another; "
            "nothing was committed, report this"
        )
    if earlier is None or _base(earlier) != _base(result):
        table.delete(name)
        table.put_new(name, data)
        return result
    return earlier


def read_markers(table: Store, quarantine: Store, names: Sequence[str]) -> list[CellResult]:
    """Return the results that markers contain, without those with damaged parts."""
    results = [_read(table, quarantine, name) for name in names]
    return [result for result in results if result is not None]


def finished_cells(
    table: Store, quarantine: Store, plan: str, wave: int, read: ReadMarkers = read_markers
) -> Mapping[int, CellResult]:
    """Return the results of cells that an earlier attempt finished, by cell, without cells with damaged parts."""
    # A process that was killed while writing a marker leaves a draft, which may be empty.
    names = [name for name in table.names(_folder(plan, wave)) if name.endswith(".json")]
    return {result.cell: result for result in read(table, quarantine, names)}


def delete_markers(table: Store, plan: str, wave: int, cells: Collection[int]) -> None:
    """Delete the markers of cells, so that the next attempt encodes them again."""
    for name in table.names(_folder(plan, wave)):
        stem = name.rpartition("/")[2].removesuffix(".json")
        if stem.isdigit() and int(stem) in cells:
            table.delete(name)


def marked_files(table: Store, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the parts, of both tables, and of the deletion vectors that markers name."""
    for name in names:
        data = table.get(name)
        if data is not None:
            result = _from_json(json.loads(data))
            yield from (part.path for part in result.parts)
            if result.quarantine:
                yield result.quarantine.path
            yield from (path for each in result.deletions if (path := file_of(each.vector)))


def _folder(plan: str, wave: int) -> str:
    return f"{MARKERS_FOLDER}/{plan}/{wave}"


def _read(table: Store, quarantine: Store, name: str) -> CellResult | None:
    data = table.get(name)
    if data is None:
        return None
    result = _from_json(json.loads(data))
    try:
        check_cell(table, quarantine, result)
    except CommitError:
        return None
    return result


def _from_json(fields: dict[str, Any]) -> CellResult:
    parts = tuple(Part(**part) for part in fields.pop("parts"))
    bad = fields.pop("quarantine")
    deletions = tuple(
        Deletion(**{**deletion, "vector": DeletionVector(**deletion["vector"])}) for deletion in fields.pop("deletions")
    )
    follows = tuple(
        CellOutput(output["wave"], tuple(output["parts"]), output["quarantine"]) for output in fields.pop("follows")
    )
    fields["reused"] = True
    quarantine = Part(**bad) if bad else None
    counts = Counts(**fields.pop("counts"))
    return CellResult(counts=counts, parts=parts, quarantine=quarantine, deletions=deletions, follows=follows, **fields)


def _base(result: CellResult) -> object:
    """Return what a result was based on: the parts that it deletes rows of, and the results that it follows."""
    return {(deletion.path, deletion.before) for deletion in result.deletions}, result.follows
