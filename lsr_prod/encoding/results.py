"""Results of encoding, from small to large: a cell, a block of cells, a wave, and what a wave cost."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lsr_prod.encoding.busy import BusyTime
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.inference import Counters
from lsr_prod.storage.counts import StoreCounts
from lsr_prod.tables import Part
from lsr_prod.tables.deletion_vector import DeletionVector


@dataclass(frozen=True, slots=True)
class CellOutput:
    """Parts of a cell in one wave. Their paths name their contents, so equal outputs have equal rows.

    Attributes:
        wave: number of the wave.
        parts: paths of the new parts of the sparse table.
        quarantine: path of the part with the bad rows, or None.
    """

    wave: int
    parts: tuple[str, ...]
    quarantine: str | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows of a committed part that a wave deletes.

    Attributes:
        path: of the part.
        before: ``DeletionVector.unique_id`` of the rows that were deleted in the snapshot; None: no row.
        vector: these rows and those that the wave deletes.
        rows: number of rows that the wave deletes.
    """

    path: str
    before: str | None
    vector: DeletionVector
    rows: int

    @property
    def rows_before(self) -> int:
        """Number of rows that were deleted in the snapshot."""
        return self.vector.rows - self.rows


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of a cell in one wave; the content of its marker.

    Attributes:
        cell: number of the cell.
        bucket: its bucket.
        rows_in: rows of the source.
        parts: new parts of the sparse table.
        quarantine: part with the bad rows, or None.
        reasons: bad rows by reason.
        clipped: weights above the largest impact.
        deletions: committed rows of this cell that are deleted, by part.
        deleted: documents of these rows that no new part has.
        superseded: documents of these rows that have a new version.
        displaced: committed documents that another row of their id replaces; they are quarantined as duplicates.
        encoded: documents that went through the model.
        reused: an earlier attempt finished the cell.
        follows: outputs of this cell in earlier waves of the plan that were not committed when the ids were looked
            up.
        weights: weights of the encoded documents.
        unread_bytes: bytes of the source that do not decode; the rows in them are not counted.
    """

    cell: int
    bucket: int
    rows_in: int
    parts: tuple[Part, ...]
    quarantine: Part | None
    reasons: Mapping[str, int]
    clipped: int
    deletions: tuple[Deletion, ...] = ()
    deleted: int = 0
    superseded: int = 0
    displaced: int = 0
    encoded: int = 0
    reused: bool = False
    follows: tuple[CellOutput, ...] = ()
    weights: int = 0
    unread_bytes: int = 0

    def output(self, wave: int) -> CellOutput:
        """Return the parts of this result, which is one of ``wave``."""
        bad = self.quarantine.path if self.quarantine else None
        return CellOutput(wave, tuple(part.path for part in self.parts), bad)

    @property
    def rows_out(self) -> int:
        """Rows of the source that became documents of ``parts``."""
        return sum(part.rows for part in self.parts)

    @property
    def quarantined(self) -> int:
        """Rows of the source that are bad."""
        return self.quarantine.rows if self.quarantine else 0


@dataclass(frozen=True, slots=True)
class BlockResult:
    """Result of a block: cells that an actor received at once.

    Attributes:
        node: host name of the actor.
        cells: one result per cell.
        counters: documents and tokens that the model read; zero if it ran in a child process.
        seconds: duration, with the time that it waited for the model.
        model_seconds: duration of the calls of the model.
        io: requests and bytes of the actor since its result before.
    """

    node: str
    cells: tuple[CellResult, ...]
    counters: Counters
    seconds: float
    model_seconds: float
    io: StoreCounts = field(default_factory=StoreCounts)


@dataclass(frozen=True, slots=True)
class WaveResult:
    """Result of a wave, before its commit.

    Attributes:
        wave: its number.
        cells: one result per cell.
    """

    wave: int
    cells: tuple[CellResult, ...]

    @property
    def rows_in(self) -> int:
        """Rows of the source that reached the encoders."""
        return sum(cell.rows_in for cell in self.cells)

    @property
    def rows_out(self) -> int:
        """Rows of the source that became documents of the new parts."""
        return sum(cell.rows_out for cell in self.cells)

    @property
    def clipped(self) -> int:
        """Weights above the largest impact."""
        return sum(cell.clipped for cell in self.cells)

    @property
    def weights(self) -> int:
        """Weights of the encoded documents."""
        return sum(cell.weights for cell in self.cells)

    @property
    def clipped_share(self) -> float:
        """Share of the weights that are above the largest impact."""
        return self.clipped / max(self.weights, 1)

    @property
    def unread_bytes(self) -> int:
        """Bytes of the source that do not decode."""
        return sum(cell.unread_bytes for cell in self.cells)

    @property
    def deleted(self) -> int:
        """Documents that are deleted from the table."""
        return sum(cell.deleted for cell in self.cells)

    @property
    def superseded(self) -> int:
        """Documents of deleted rows that have a new version."""
        return sum(cell.superseded for cell in self.cells)

    def deletions(self) -> dict[str, list[Deletion]]:
        """Return the deletions of the cells by the path of their part."""
        found: dict[str, list[Deletion]] = {}
        for cell in self.cells:
            for deletion in cell.deletions:
                found.setdefault(deletion.path, []).append(deletion)
        return found

    @property
    def displaced(self) -> int:
        """Committed documents that another row of their id replaces."""
        return sum(cell.displaced for cell in self.cells)

    @property
    def encoded(self) -> int:
        """Documents that went through the model."""
        return sum(cell.encoded for cell in self.cells)

    @property
    def reasons(self) -> Counter[str]:
        """Bad rows by reason."""
        return sum((Counter(cell.reasons) for cell in self.cells), Counter[str]())

    def check(self) -> None:
        """Check that no row was lost or duplicated between source and parts."""
        for cell in self.cells:
            out, bad = cell.rows_out, cell.quarantined
            if cell.rows_in + cell.displaced != out + bad or bad != sum(cell.reasons.values()):
                raise self._error(
                    f", cell {cell.cell}: {cell.rows_in} rows in, {cell.displaced} documents displaced, {out} out and "
                    f"{bad} quarantined"
                )
            rows = sum(deletion.rows for deletion in cell.deletions)
            if rows != cell.superseded + cell.deleted:
                raise self._error(
                    f", cell {cell.cell}: {rows} rows deleted, but {cell.superseded} documents superseded and "
                    f"{cell.deleted} deleted"
                )
        if len({cell.cell for cell in self.cells}) < len(self.cells):
            raise self._error(": a cell was encoded in several pieces, so duplicate ids could be missed")

    def _error(self, problem: str) -> IncompleteWaveError:
        return IncompleteWaveError(f"wave {self.wave}{problem}; nothing was committed, report this")


@dataclass(frozen=True, slots=True)
class WaveCosts:
    """Work spent on a wave.

    Attributes:
        encoded: documents that went through the model in this run.
        reused_cells: cells that an earlier attempt had finished.
        counters: documents and tokens that the model read.
        busy: working time of the encoders.
        io: requests and bytes of the encoders.
    """

    encoded: int
    reused_cells: int
    counters: Counters
    busy: BusyTime = field(default_factory=BusyTime)
    io: StoreCounts = field(default_factory=StoreCounts)

    def __add__(self, other: "WaveCosts") -> "WaveCosts":
        """Return the work of two attempts at a wave in the same run."""
        return WaveCosts(
            self.encoded + other.encoded,
            other.reused_cells,
            self.counters + other.counters,
            self.busy + other.busy,
            self.io + other.io,
        )
