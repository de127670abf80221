"""All source formats: lookup by name and by file name ending."""

import re

from lsr_prod.corpus.formats import (
    arrow,
    delimited,
    delta,
    iceberg,
    interface,
    json_lines,
    json_values,
    parquet,
    saved_dataset,
)
from lsr_prod.corpus.pinned_file import COMPRESSIONS

FILE_FORMATS: tuple[interface.SourceFormat, ...] = (
    parquet.PARQUET,
    json_lines.JSON_LINES,
    json_values.JSON,
    delimited.CSV,
    delimited.TSV,
    arrow.ARROW_STREAM,
)
FOLDER_FORMATS: tuple[interface.FolderFormat, ...] = (
    iceberg.ICEBERG,
    delta.DELTA,
    json_lines.BEIR,
    saved_dataset.SAVED_DATASET,
)

ENDINGS = (
    f"{', '.join(suffix for found in FILE_FORMATS for suffix in found.suffixes)}, "
    f"text formats also {', '.join(COMPRESSIONS)}"
)
"""File name endings, for people."""

SUFFIXES: dict[str, str] = {
    suffix + compression: found.name + compression
    for found in FILE_FORMATS
    for suffix in found.suffixes
    for compression in ("", *(COMPRESSIONS if found.compressible else ()))
}
"""File name ending -> value of ``SourceFile.format``."""

_UNREAD = re.compile(
    rf"({'|'.join(re.escape(suffix) for found in FILE_FORMATS for suffix in found.suffixes)})"
    rf"({'|'.join(map(re.escape, COMPRESSIONS))}|\.(?:7z|br|deflate|lz|lzma|lzo|rar|snappy|sz|z|zstd))"
)

_BY_NAME = {found.name: found for found in FILE_FORMATS}


def file_format(name: str) -> interface.SourceFormat:
    """Return the format with a value of ``SourceFile.format``, compressed or not."""
    compression = next((ending for ending in COMPRESSIONS if name.endswith(ending)), "")
    return _BY_NAME[name.removesuffix(compression)]


def find_format(name: str, wanted: str) -> str | None:
    """Return the value of ``SourceFile.format`` for a file, or None if the format is unknown."""
    lower = name.lower()
    if wanted in _BY_NAME:
        compressions = COMPRESSIONS if _BY_NAME[wanted].compressible else ()
        return wanted + next((ending for ending in compressions if lower.endswith(ending)), "")
    return next((found for suffix, found in SUFFIXES.items() if lower.endswith(suffix)), None)


def refusal(name: str) -> tuple[str, str] | None:
    """Return (problem, remedy) for a name that is not valid, or of a known format, but of a compression not read."""
    if name != name.encode(errors="replace").decode():
        return "has a name that is not valid UTF-8", "rename it"
    found = _UNREAD.search(name.lower())
    if found is None or found.end() < len(name) or name.lower().endswith(tuple(SUFFIXES)):
        return None
    if found[2] in COMPRESSIONS:
        return f"is a compressed {found[1]} file", "decompress it: such a file compresses its own pages"
    return f"is compressed as {found[2]}", f"compress it as {', '.join(COMPRESSIONS)}, or not"
