"""One pinned file of a source."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from lsr_prod.formats.digest import canonical_json


class DamagedFileError(Exception):
    """The rest of a file does not have the format that was expected."""

    def __init__(self, problem: str, decoded: int | None = None) -> None:
        super().__init__(problem)
        self.decoded = decoded


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One pinned file of a source.

    Attributes:
        uri: its folder.
        name: its path inside the folder.
        format: name of the file format, with ``.gz`` or ``.zst`` if it is compressed.
        size: bytes.
        tag: sha256 of a local file, ETag of an object, or the entry of a Delta log: it changes when the file changes.
        constants: columns with one value for the whole file, from the partition of a Delta source.
        etag: of an object; empty for a local file.
        mtime_ns: time of the last write of a local file, in nanoseconds since 1970; 0 for an object, and for a file
            that was written so shortly before it was pinned that a later write could leave its time unchanged.
        inode: of a local file; 0 for an object.

    The last three are facts of a location, which a reader verifies. They are neither part of the identity nor compared.
    """

    uri: str
    name: str
    format: str
    size: int
    tag: str
    constants: tuple[tuple[str, str | None], ...] = ()
    etag: str = field(default="", compare=False)
    mtime_ns: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)

    @property
    def location(self) -> str:
        """Path or URI, for people."""
        return f"{self.uri.rstrip('/')}/{self.name}"

    @property
    def key(self) -> int:
        """64 bits that identify the content: the first 8 bytes of the sha256 of ``identity``, big-endian, signed."""
        digest = hashlib.sha256(canonical_json(self.identity())).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def identity(self) -> dict[str, Any]:
        """Return the values that identify the content; the folder is not one of them, so a corpus can move."""
        constants = dict(self.constants)
        name = self.name.rpartition("/")[2]
        return {"name": name, "format": self.format, "size": self.size, "tag": self.tag, "constants": constants}
