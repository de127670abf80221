"""Markers of finished cells: what an attempt encoded is not encoded again by the next one.

A marker names parts that no commit names yet. Whoever makes it first decides the cell: outputs need not be bit-equal
between attempts, and both describe the same rows of the same pinned source.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lsr_prod.encoding.commit.committer import check_cell
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, IncompleteWaveError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.storage import Store
from lsr_prod.tables import Part

__all__ = ["MARKERS_FOLDER", "finished_cells", "forget", "mark", "marked_parts"]

MARKERS_FOLDER = f"{PROTOCOL_FOLDER}/done"


def mark(table: Store, quarantine: Store, plan: str, wave: int, cells: int, result: CellResult) -> CellResult:
    """Note that a cell is encoded.

    Args:
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        plan: digest of the plan.
        wave: number of the wave.
        cells: cells of the wave.
        result: its parts lie in the folders.

    Returns:
        The result that stands: this one, or that of another attempt that was first, whose parts are whole and which
        replaces the same parts (a compaction in between would make it one that no commit takes).
    """
    name = f"{_folder(plan, wave, cells)}/{result.cell}.json"
    data = canonical_json(asdict(result)) + b"\n"
    if table.put_new(name, data):
        return result
    standing = _read(table, quarantine, name)
    if standing is not None and standing.rows_in != result.rows_in:
        raise IncompleteWaveError(
            f"wave {wave}, cell {result.cell}: {result.rows_in} rows, and {standing.rows_in} for another attempt; "
            "nothing was committed, report this"
        )
    if standing is None or standing.removes != result.removes:
        table.delete(name)
        table.put_new(name, data)
        return result
    return standing


def finished_cells(table: Store, quarantine: Store, plan: str, wave: int, cells: int) -> Mapping[int, CellResult]:
    """Results of the cells that an earlier attempt finished, by cell; those with damaged parts are left out."""
    # A process that was killed while it wrote a marker leaves a draft, which may be empty.
    names = [name for name in table.names(_folder(plan, wave, cells)) if name.endswith(".json")]
    results = [_read(table, quarantine, name) for name in names]
    return {result.cell: result for result in results if result is not None}


def forget(table: Store, plan: str, wave: int, cells: Collection[int]) -> None:
    """Have cells of a wave encoded again by the next attempt."""
    for name in table.names(f"{MARKERS_FOLDER}/{plan}/{wave}"):
        stem = name.rpartition("/")[2].removesuffix(".json")
        if stem.isdigit() and int(stem) in cells:
            table.delete(name)


def marked_parts(table: Store, names: Iterable[str]) -> Iterator[Part]:
    """Parts, of either table, that markers name.

    Args:
        table: the sparse table's folder.
        names: of the markers; one that is gone names nothing.
    """
    for name in names:
        data = table.get(name)
        if data is not None:
            result = _from_json(json.loads(data))
            yield from result.parts
            if result.quarantine:
                yield result.quarantine


def _folder(plan: str, wave: int, cells: int) -> str:
    return f"{MARKERS_FOLDER}/{plan}/{wave}/{cells}"


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
    removes = tuple(fields.pop("removes"))
    fields["reused"] = True
    return CellResult(parts=parts, quarantine=Part(**bad) if bad else None, removes=removes, **fields)
