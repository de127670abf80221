"""Write encoded cells in a thread while the model encodes the next one."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lsr_prod.encoding.cells.batches import Failure
from lsr_prod.encoding.cells.cell import PreparedCell, write_cell
from lsr_prod.encoding.cells.lookup import WaveTask
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.results import CellOutput, CellResult
from lsr_prod.formats.sparse import SparseBatch


class CellWriter:
    """Writes the parts and the marker of one cell at a time. Use as a context manager, which waits for the last cell.

    Attributes:
        results: of the written cells, in order; complete after the context has ended.
    """

    def __init__(self, task: WaveTask, follows: Mapping[int, Sequence[CellOutput]]) -> None:
        self._task, self._follows = task, follows
        self._thread = ThreadPoolExecutor(1, "write")
        self._last: Future[CellResult] | None = None
        self.results: list[CellResult] = []

    def __enter__(self) -> "CellWriter":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self._wait()
        finally:
            self._thread.shutdown()

    def write(self, cell: PreparedCell, vectors: SparseBatch, failures: Mapping[int, Failure]) -> None:
        """Begin to write a cell when the one before is written, so that at most two are in memory."""
        self._wait()
        self._last = self._thread.submit(self._write, cell, vectors, failures)

    def _write(self, cell: PreparedCell, vectors: SparseBatch, failures: Mapping[int, Failure]) -> CellResult:
        task = self._task
        result = write_cell(task, cell, vectors, failures, self._follows.get(cell.found.cell, ()))
        return mark_finished(task.table, task.quarantine, task.plan, task.wave, result)

    def _wait(self) -> None:
        if self._last is not None:
            last, self._last = self._last, None
            self.results.append(last.result())
