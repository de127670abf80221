"""Sources of training data: files are pinned, cut, and read as validated rows through the formats of the corpus."""

from collections.abc import Iterator
from contextlib import contextmanager

from lsr_prod.config import SourceSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.cut import cut_files
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest
from lsr_prod.corpus.read import read_records
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.corpus.sources import resolve_source
from lsr_prod.errors import ConfigError
from lsr_prod.training_data.rows import TrainingRow, validate

_JSON_BYTES = 1 << 20


@contextmanager
def field_errors(section: str) -> Iterator[None]:
    """Name the settings of a section in errors about the source settings that stand for them."""
    try:
        yield
    except ConfigError as error:
        name = error.field.removeprefix("source.").removeprefix("data.")
        name = "columns" if name in ("id_field", "text_fields") else name
        raise ConfigError(f"{section}.{name}", error.problem, error.remedy) from error


def pin_files(data: TrainingDataSettings, options: dict[str, str]) -> list[SourceFile]:
    """List the pinned files of training data in order; local files are read, about a second per GiB."""
    with field_errors("data"):
        return list(resolve_source(_source(data), options, documents=False))


def cut_data(
    files: list[SourceFile], data: TrainingDataSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    """Yield slices of about ``limit`` bytes of all files, in order."""
    return cut_files(enumerate(files), _source(data), limit, options)


def read_rows(
    piece: Slice, data: TrainingDataSettings, options: dict[str, str], *, needs_negative: bool
) -> Iterator[tuple[int, TrainingRow | BadRow]]:
    """Yield (position, row) of every row of a slice; a position is a byte of a text format, or a row number."""
    for position, record in read_data(piece, data, options):
        assert record is not None  # all are wanted
        if isinstance(record, BadRow):
            yield position, record
        else:
            yield position, validate(record.values, data, needs_negative=needs_negative, line=record.line)


def read_data(piece: Slice, data: TrainingDataSettings, options: dict[str, str]) -> Iterator[Decoded]:
    """Yield (position, record) of every row of a slice, not validated."""
    request = ReadRequest(
        source=_source(data),
        columns=frozenset(data.column(field) for field in data.fields),
        limit=row_limit(data),
        lists=True,
    )
    return read_records(piece, request, options)


def source_of(data: TrainingDataSettings, id_field: str, text_fields: list[str]) -> SourceSettings:
    """Return the settings by which the corpus lists, cuts and reads files of training data."""
    return SourceSettings(
        paths=data.paths,
        format=data.format,
        version=data.version,
        id_field=id_field,
        text_fields=text_fields,
        stored_fields=[],
    )


def row_limit(data: TrainingDataSettings) -> int:
    """Return the bytes of the longest row: it has many texts, and escapes lengthen each."""
    return 64 * data.max_text_bytes + _JSON_BYTES


def _source(data: TrainingDataSettings) -> SourceSettings:
    columns = [data.column(field) for field in data.fields]
    return source_of(data, columns[0], columns)
