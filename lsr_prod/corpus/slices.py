"""Slices: the part of a source file that one task reads."""

from dataclasses import dataclass

from lsr_prod.corpus.pinned_file import SourceFile

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
"""Endings of a compressed file and of its ``SourceFile.format``."""

WHOLE = -1
"""``Slice.stop`` of a file whose footer was not read: all of its row groups."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one source file; self-contained, so that no list of files travels with it."""

    file: SourceFile  # the pinned file
    ordinal: int  # its number in the plan
    start: int  # first byte of text, first row group of a file with a footer
    # end (exclusive), or ``WHOLE``. A line belongs to the slice that has its first byte; a compressed file is
    # never cut.
    stop: int
    first_row: int  # number of rows before ``start`` in a file with a footer
    size: int  # source bytes, to balance tasks

    @property
    def byte_range(self) -> tuple[int, int | None]:
        """Range of plain bytes in a text file; the end is None for a compressed file, whose plain size is unknown."""
        return (0, None) if self.file.format.endswith(COMPRESSIONS) else (self.start, self.stop)
