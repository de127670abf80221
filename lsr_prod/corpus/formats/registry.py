"""All source formats: lookup by name and by file name ending."""

from lsr_prod.corpus.formats.arrow import ARROW_STREAM
from lsr_prod.corpus.formats.delimited import CSV, TSV
from lsr_prod.corpus.formats.delta import DELTA
from lsr_prod.corpus.formats.interface import FolderFormat, SourceFormat
from lsr_prod.corpus.formats.json_lines import BEIR, JSON_LINES
from lsr_prod.corpus.formats.parquet import PARQUET
from lsr_prod.corpus.formats.saved_dataset import SAVED_DATASET
from lsr_prod.corpus.slices import COMPRESSIONS

FILE_FORMATS: tuple[SourceFormat, ...] = (PARQUET, JSON_LINES, CSV, TSV, ARROW_STREAM)
FOLDER_FORMATS: tuple[FolderFormat, ...] = (DELTA, BEIR, SAVED_DATASET)

SUFFIXES: dict[str, str] = {
    suffix + compression: found.name + compression
    for found in FILE_FORMATS
    for suffix in found.suffixes
    for compression in ("", *(COMPRESSIONS if found.compressible else ()))
}
"""File name ending -> value of ``SourceFile.format``."""

_BY_NAME = {found.name: found for found in FILE_FORMATS}


def file_format(name: str) -> SourceFormat:
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
