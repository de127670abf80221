"""One pinned file of the corpus, and how it may be cut."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lsr_prod.config import SourceSettings
from lsr_prod.formats.digest import canonical_json

__all__ = ["ENDINGS", "Cut", "DamagedFileError", "FileFormat", "SourceFile", "cut_of", "format_of"]

FileFormat = Literal[
    "parquet", "arrow", "jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "csv.zst", "tsv", "tsv.gz", "tsv.zst"
]
Cut = Literal["groups", "bytes", "whole"]

_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
_COMPRESSED = (".gz", ".zst")
# Arrow files have no ending of their own here: they are read as parts of a saved dataset, never as loose files.
ENDINGS: dict[str, FileFormat] = {f".{name}": name for name in _FORMATS if not name.startswith("arrow")} | {
    f".ndjson{name.removeprefix('jsonl')}": name for name in _FORMATS if name.startswith("jsonl")
}


class DamagedFileError(Exception):
    """From here on the bytes of a file are not what its format says; the reader puts that into the quarantine."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One pinned file of the corpus.

    Attributes:
        uri: its folder.
        name: its path inside the folder.
        format: how to read it.
        size: bytes.
        tag: sha256 of a local file, ETag of an object, or the entry of a Delta log: what changes when the file does.
        constants: values that every row has, from the partition of a Delta source.
    """

    uri: str
    name: str
    format: FileFormat
    size: int
    tag: str
    constants: tuple[tuple[str, str | None], ...] = ()

    @property
    def location(self) -> str:
        """Path or URI, for people."""
        return f"{self.uri.rstrip('/')}/{self.name}"

    @property
    def key(self) -> int:
        """Names the file's content in 64 bits: the first 8 bytes of sha256 of ``identity``, big-endian, signed."""
        digest = hashlib.sha256(canonical_json(self.identity())).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def identity(self) -> dict[str, Any]:
        """What names the content, whatever folder it lies in: a corpus that moved is still the same corpus."""
        constants = dict(self.constants)
        name = self.name.rpartition("/")[2]
        return {"name": name, "format": self.format, "size": self.size, "tag": self.tag, "constants": constants}


def cut_of(file: SourceFile, source: SourceSettings) -> Cut:
    """How a file may be cut so that every row lies in exactly one piece.

    A line of JSONL is a row wherever it stands. A line of CSV is one only where no field can hold a line end: with
    quotes, no reader that starts in the middle can know whether it stands inside of a field.
    """
    if file.format == "parquet":
        return "groups"
    if file.format == "jsonl" or (file.format in ("csv", "tsv") and not source.quotes):
        return "bytes"
    return "whole"


def format_of(name: str, wanted: str) -> FileFormat | None:
    """How to read a file of that name: what is wanted, else what its ending says, else None."""
    lower = name.lower()
    if wanted == "parquet":
        return "parquet"
    if wanted in ("jsonl", "csv", "tsv"):
        ending = next((ending for ending in _COMPRESSED if lower.endswith(ending)), "")
        return next(known for known in _FORMATS if known == wanted + ending)
    return next((found for ending, found in ENDINGS.items() if lower.endswith(ending)), None)
