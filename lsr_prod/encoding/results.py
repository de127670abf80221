"""Results of encoding, from small to large: a cell, a block of cells, a wave; and the counts of each, which add up."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from lsr_prod.encoding.tables import Part
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.storage.remote import StoreCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of an encode job, which add up over cells, blocks, waves and runs.

    A cell counts what became of its rows, a block the work of its encoder. So work on a wave that is lost counts, and
    its rows count only once.
    """

    rows_in: int = 0  # rows of the source
    rows_out: int = 0  # rows of the source that became documents
    quarantined_by_reason: Mapping[str, int] = field(default_factory=dict)  # bad rows by reason
    unread_bytes: int = 0  # bytes of the source that do not decode; the rows in them are not counted
    unchanged: int = 0  # documents that kept their vector
    deleted: int = 0  # documents that were deleted from the table
    superseded: int = 0  # documents of deleted rows that have a new version
    displaced: int = 0  # committed documents that another row of their id replaces; they are quarantined as duplicates
    clipped: int = 0  # weights above the largest impact
    weights: int = 0  # weights of the documents that were encoded
    reused_cells: int = 0  # cells that an earlier attempt had finished
    encoded: int = 0  # documents that went through the model in this run
    tokens: int = 0  # tokens that the model read in this run, padding excluded; 0 if it ran in a child process
    padded_tokens: int = 0  # tokens of its batches, padding included
    cut_documents: int = 0  # documents with text beyond their last passage
    requests: int = 0  # requests to stores of the driver and the encoders in this run, those of delta-rs excluded
    bytes_read: int = 0  # bytes that they read; those of the source are read by other tasks and not included
    bytes_written: int = 0  # bytes that they wrote

    def __add__(self, other: "Counts") -> "Counts":
        return Counts.sum((self, other))

    @classmethod
    def of_store(cls, io: StoreCounts) -> "Counts":
        """Return the requests and bytes of a process."""
        return cls(requests=sum(io.requests.values()), bytes_read=io.bytes_read, bytes_written=io.bytes_written)

    @classmethod
    def sum(cls, counts: Iterable["Counts"]) -> "Counts":
        """Return the sum."""
        reasons: Counter[str] = Counter()
        numbers: Counter[str] = Counter()
        for one in counts:
            reasons.update(one.quarantined_by_reason)
            numbers.update({name: getattr(one, name) for name in _NUMBERS})
        return Counts(quarantined_by_reason=dict(sorted(reasons.items())), **numbers)

    @property
    def document_rows(self) -> int:
        """Rows of the source that are documents of the table."""
        return self.rows_out - self.displaced

    @property
    def quarantined(self) -> int:
        """Bad rows."""
        return sum(self.quarantined_by_reason.values())

    @property
    def clipped_share(self) -> float:
        """Share of the weights that are above the largest impact."""
        return self.clipped / max(self.weights, 1)

    @property
    def padding_share(self) -> float:
        """Share of padding in the batches."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0


_NUMBERS = [each.name for each in fields(Counts) if each.name != "quarantined_by_reason"]


@dataclass(frozen=True, slots=True)
class CellOutput:
    """Parts of a cell in one wave. Their paths name their contents, so equal outputs have equal rows."""

    wave: int  # number of the wave
    parts: tuple[str, ...]  # paths of the new parts of the sparse table
    quarantine: str | None  # path of the part with the bad rows, or None


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of a cell in one wave; the content of its marker."""

    cell: int  # number of the cell
    bucket: int  # its bucket
    counts: Counts  # what became of its rows
    parts: tuple[Part, ...]  # new parts of the sparse table
    quarantine: Part | None  # part with the bad rows, or None
    deletions: tuple[Deletion, ...] = ()  # committed rows of this cell that are deleted, by part
    reused: bool = False  # an earlier attempt finished the cell
    # outputs of this cell in earlier waves of the plan that were not committed when the ids were looked up
    follows: tuple[CellOutput, ...] = ()

    def output(self, wave: int) -> CellOutput:
        """Return the parts of this result, which is one of ``wave``."""
        bad = self.quarantine.path if self.quarantine else None
        return CellOutput(wave, tuple(part.path for part in self.parts), bad)

    @property
    def encoded(self) -> int:
        """Documents that went through the model, in this attempt or an earlier one."""
        return self.counts.rows_out - self.counts.unchanged


@dataclass(frozen=True, slots=True)
class BlockResult:
    """Result of a block: cells that an actor received at once."""

    node: str  # host name of the actor
    cells: tuple[CellResult, ...]  # one result per cell
    counts: Counts  # work of the actor since its result before
    model_seconds: float  # duration of the calls of the model


@dataclass(frozen=True, slots=True)
class WaveResult:
    """Result of a wave, before its commit."""

    wave: int  # its number
    cells: tuple[CellResult, ...]  # one result per cell

    @property
    def counts(self) -> Counts:
        """Counts of the rows of all cells."""
        reused = Counts(reused_cells=sum(cell.reused for cell in self.cells))
        return Counts.sum((reused, *(cell.counts for cell in self.cells)))

    def deletions(self) -> dict[str, list[Deletion]]:
        """Return the deletions of the cells by the path of their part."""
        found: dict[str, list[Deletion]] = {}
        for cell in self.cells:
            for deletion in cell.deletions:
                found.setdefault(deletion.path, []).append(deletion)
        return found

    def check(self) -> None:
        """Check that no row was lost or duplicated between source and parts."""
        for cell in self.cells:
            counts = cell.counts
            out = sum(part.rows for part in cell.parts)
            bad = cell.quarantine.rows if cell.quarantine else 0
            balanced = counts.rows_in + counts.displaced == out + bad
            if not balanced or (counts.rows_out, counts.quarantined) != (out, bad):
                raise self._error(
                    f", cell {cell.cell}: {counts.rows_in} rows in, {counts.displaced} documents displaced, {out} out "
                    f"and {bad} quarantined"
                )
            rows = sum(deletion.rows for deletion in cell.deletions)
            if rows != counts.superseded + counts.deleted:
                raise self._error(
                    f", cell {cell.cell}: {rows} rows deleted, but {counts.superseded} documents superseded and "
                    f"{counts.deleted} deleted"
                )
        if len({cell.cell for cell in self.cells}) < len(self.cells):
            raise self._error(": a cell was encoded in several pieces, so duplicate ids could be missed")

    def _error(self, problem: str) -> IncompleteWaveError:
        return IncompleteWaveError(f"wave {self.wave}{problem}; nothing was committed, report this")


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Working time of encoders, summed over blocks."""

    seconds: float = 0.0  # duration of the calls of the model, summed over blocks
    # start of the model in the first block, on the monotonic clock of the driver; opening it is not included
    first: float = math.inf
    last: float = -math.inf  # end of the last block, on the same clock

    @classmethod
    def of_block(cls, seconds: float, ended: float) -> "BusyTime":
        """Return the time of one block whose model ran for ``seconds`` and that ended at ``ended``."""
        return cls(seconds, ended - seconds, ended)

    def __add__(self, other: "BusyTime") -> "BusyTime":
        return BusyTime(self.seconds + other.seconds, min(self.first, other.first), max(self.last, other.last))

    @property
    def span_s(self) -> float:
        """Seconds from the start of the first to the end of the last block; 0 without a block."""
        return max(self.last - self.first, 0.0)

    def share(self, actors: int) -> float:
        """Return the share of that time in which ``actors`` encoders worked; 0 without a block.

        At most 1: in a run of a second the driver learns of several blocks at once, and takes their ends for one.
        """
        return min(self.seconds / (actors * self.span_s), 1.0) if self.span_s else 0.0
