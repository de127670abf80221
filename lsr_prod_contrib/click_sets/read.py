"""Click logs on a disk or in an object store become a log in memory; bad rows go to the quarantine."""

from collections.abc import Iterable
from dataclasses import dataclass

from lsr_prod.config import CsvSettings, SourceSettings
from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.formats.interface import ReadRequest
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.corpus.read import read_records
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter
from lsr_prod.errors import ConfigError, QuarantineOverflowError
from lsr_prod_contrib.click_sets.log import LogBuilder
from lsr_prod_contrib.click_sets.rows import validate_click

_SLICE_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Pinned files of a click log."""

    files: list[SourceFile]  # pinned files, in order
    slices: list[Slice]  # their slices
    request: ReadRequest  # columns to read

    @classmethod
    def find(cls, settings: ClickSetSettings, options: dict[str, str]) -> "LogFiles":
        """List and pin the files."""
        source = _source(settings)
        try:
            files = list(resolve_source(source, options, documents=False))
            slices = list(cut_files(enumerate(files), source, _SLICE_BYTES, options))
        except ConfigError as error:
            raise _own_error(error) from error
        columns = settings.columns
        request = ReadRequest(
            source=source,
            columns=frozenset(name for name in columns.model_dump().values() if name is not None),
            limit=16 * settings.max_text_bytes + (1 << 20),  # escapes can make JSON six times as long as its text
            ids=frozenset(name for name in (columns.document, columns.cluster) if name is not None),
        )
        return cls(files, slices, request)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Accounts of the rows: rows == used + skipped + quarantined."""

    rows: int  # rows of all files
    used: int  # rows that are in the log
    skipped: dict[str, int]  # valid rows that are no clicks, by rule
    quarantined: dict[str, int]  # bad rows by reason


def read_log(
    slices: Iterable[Slice],
    request: ReadRequest,
    settings: ClickSetSettings,
    quarantine: BadRowWriter,
    options: dict[str, str],
) -> tuple[LogBuilder, RowCounts]:
    """Read all rows."""
    builder, rows = LogBuilder(settings.max_position), 0
    for piece in slices:
        for position, record in read_records(piece, request, options):
            assert record is not None  # all are wanted
            rows += 1
            row = record if isinstance(record, BadRow) else validate_click(record, settings)
            if isinstance(row, BadRow):
                file = piece.file
                quarantine.add(row, ordinal=piece.ordinal, key=file.key, source=file.location, position=position)
            else:
                builder.add(row)
    quarantine.flush()
    bad = quarantine.reasons
    if not rows:
        raise ConfigError("click_set.paths", "the files contain no rows", "give files that contain clicks")
    if bad.total() > settings.max_bad_fraction * rows:
        reasons = ", ".join(f"{reason} {number}" for reason, number in bad.most_common())
        raise QuarantineOverflowError(
            f"{bad.total()} of {rows} rows are bad ({reasons}), more than click_set.max_bad_fraction allows; fix the "
            "log or click_set.columns, or raise the limit"
        )
    counts = RowCounts(rows, builder.used, dict(sorted(builder.skipped.items())), dict(sorted(bad.items())))
    assert counts.rows == counts.used + sum(counts.skipped.values()) + sum(counts.quarantined.values())
    return builder, counts


def _own_error(error: ConfigError) -> ConfigError:
    """Return the error of a source with the setting of ``click_set``, which has fewer than a source."""
    field, remedy = error.field.removeprefix("source."), error.remedy
    if field == "csv.delimiter":  # the remedy quotes the delimiter
        known = {r"'\t'": "set it to tsv", "','": "set it to csv"}
        other = "write the file again with commas or tabs between the columns"
        remedy = next((fix for mark, fix in known.items() if mark in remedy), other)
    elif field == "csv.encoding":
        remedy = "write the file again in UTF-8"
    names = {
        "id_field": "columns.document",
        "text_fields": "columns",
        "csv.delimiter": "format",
        "csv.encoding": "paths",
    }
    return ConfigError(f"click_set.{names.get(field, field.removeprefix('csv.'))}", error.problem, remedy)


def _source(settings: ClickSetSettings) -> SourceSettings:
    columns = settings.columns
    texts = [columns.query, *(name for name in (columns.title, columns.text) if name is not None)]
    return SourceSettings(
        paths=settings.paths,
        format=settings.format,
        id_field=columns.document,
        text_fields=texts,
        stored_fields=[],
        csv=CsvSettings(header=settings.header, quotes=settings.quotes),
    )
