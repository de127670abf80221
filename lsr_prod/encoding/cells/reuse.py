"""Results of a cell that another encoding of the cell may use or has to look up.

A cell may be encoded before the result of an earlier wave is committed. Its result then depends on the documents of
that result, and names its parts. It is used only while the earlier wave has these parts: an attempt that encodes the
earlier wave again may have other documents, because the model failed on others.
"""

from collections.abc import Collection, Iterator, Mapping

from lsr_prod.encoding.cells.lookup import WaveTask
from lsr_prod.encoding.commit.markers import ReadMarkers, finished_cells, read_markers
from lsr_prod.encoding.results import CellOutput, CellResult, Deletion
from lsr_prod.tables import open_table
from lsr_prod.tables.quarantine import committed_files


def followed_outputs(
    task: WaveTask, cells: Collection[int], earlier: Mapping[int, Mapping[int, CellResult]]
) -> dict[int, tuple[CellOutput, ...]]:
    """Return the outputs of cells in the waves that the snapshot of a wave does not have, by cell."""
    waves = [wave for wave in sorted(earlier) if task.done <= wave < task.wave]
    return {cell: tuple(earlier[wave][cell].output(wave) for wave in waves) for cell in cells}


def reusable_results(
    task: WaveTask,
    cells: Collection[int],
    earlier: Mapping[int, Mapping[int, CellResult]],
    read: ReadMarkers = read_markers,
) -> dict[int, CellResult]:
    """Return the results of the cells that an earlier attempt has finished and that can still be committed."""
    finished = finished_cells(task.table, task.quarantine, task.plan, task.wave, read)
    found = {cell: finished[cell] for cell in cells if cell in finished}
    outputs = [output for result in found.values() for output in result.follows]
    committed = _Committed(task, {output.wave for output in outputs if output.quarantine})

    def stands(cell: int, output: CellOutput) -> bool:
        if output.wave < task.done:
            return committed.has(cell, output)
        result = earlier.get(output.wave, {}).get(cell)
        return result is not None and result.output(output.wave) == output

    # A cell that deletes rows of a part which was compacted in the meantime is encoded again.
    return {
        cell: result
        for cell, result in found.items()
        if committed.has_bases(result.bucket, result.deletions)
        and all(stands(cell, output) for output in result.follows)
    }


class _Committed:
    """Parts of the snapshot of a wave, and committed parts of the quarantine."""

    def __init__(self, task: WaveTask, waves: Collection[int]) -> None:
        self._task = task
        self._parts: dict[int, dict[str, str | None]] = {}  # bucket -> path -> unique id of its deletion vector
        self._bad = frozenset(_bad_parts(task, waves))

    def has_bases(self, bucket: int, deletions: Collection[Deletion]) -> bool:
        parts = self._parts_of(bucket) if deletions else {}
        return all(each.path in parts and parts[each.path] == each.before for each in deletions)

    def has(self, cell: int, output: CellOutput) -> bool:
        bad = output.quarantine is None or output.quarantine in self._bad
        return bad and self._parts_of(cell % self._task.properties.buckets).keys() >= {*output.parts}

    def _parts_of(self, bucket: int) -> dict[str, str | None]:
        if bucket not in self._parts:
            files = self._task.files_of(bucket)
            self._parts[bucket] = {file.path: file.deleted.unique_id if file.deleted else None for file in files}
        return self._parts[bucket]


def _bad_parts(task: WaveTask, waves: Collection[int]) -> Iterator[str]:
    quarantine = open_table(task.quarantine) if waves else None
    if quarantine is not None:
        for wave in waves:
            yield from committed_files(quarantine, task.plan, wave)
