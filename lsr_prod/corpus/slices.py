"""Slices: the part of a source file that one task reads."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.corpus.pinned_file import SourceFile

COMPRESSIONS = (".gz", ".zst")
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

    def to_json(self) -> dict[str, Any]:
        """Return a flat form with plain values: a row of a dataset."""
        file = asdict(self.file) | {"constants": json.dumps(self.file.constants)}
        own = {name: getattr(self, name) for name in ("ordinal", "start", "stop", "first_row", "size")}
        return {f"file.{name}": value for name, value in file.items()} | own

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Slice":
        """Parse the form that ``to_json`` returns."""
        file = {name.removeprefix("file."): value for name, value in row.items() if name.startswith("file.")}
        constants = tuple((name, value) for name, value in json.loads(file.pop("constants")))
        own = {name: value for name, value in row.items() if not name.startswith("file.")}
        return cls(file=SourceFile(**file, constants=constants), **own)
