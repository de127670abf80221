"""The plan: pinned files cut into slices, slices gathered into waves, and one digest that names it all.

The digest covers every setting that can change a row of the table and none that cannot, and it is the app id of every
commit. Two runs with one digest are attempts at the same work.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.encoding.sources import SourceFile
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.formats.digest import canonical_json, digest_json
from lsr_prod.storage import Store

__all__ = ["PROTOCOL_FOLDER", "Plan", "Slice", "make_plan", "save_plan"]

PLAN_FORMAT = 1
PROTOCOL_FOLDER = "_lsr_prod"


@dataclass(frozen=True, slots=True)
class Slice:
    """What one read task reads; it names all of that, so no list of files travels with it.

    Attributes:
        file: the pinned file.
        ordinal: its place in the plan.
        start: first byte of JSONL, first row group of Parquet.
        stop: the one after the last. A line belongs to the slice that holds its first byte; gzip is never cut.
        first_row: Parquet: rows before ``start``.
        size: source bytes, for balance.
    """

    file: SourceFile
    ordinal: int
    start: int
    stop: int
    first_row: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """Flat and plain: a row of a dataset."""
        file = asdict(self.file) | {"constants": json.dumps(self.file.constants)}
        own = {name: getattr(self, name) for name in ("ordinal", "start", "stop", "first_row", "size")}
        return {f"file.{name}": value for name, value in file.items()} | own

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Slice":
        """Read what ``to_json`` wrote."""
        file = {name.removeprefix("file."): value for name, value in row.items() if name.startswith("file.")}
        constants = tuple((name, value) for name, value in json.loads(file.pop("constants")))
        own = {name: value for name, value in row.items() if not name.startswith("file.")}
        return cls(file=SourceFile(**file, constants=constants), **own)


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be encoded, in which order, in which commits.

    Attributes:
        digest: sha256 (hex) of ``document``; the Delta app id of every commit.
        document: the JSON that is stored; everything that decides the table's rows.
        files: the pinned corpus.
        waves: slices of each wave, in source order; wave ``w`` is commit ``w`` of the plan.
    """

    digest: str
    document: dict[str, Any]
    files: tuple[SourceFile, ...]
    waves: tuple[tuple[Slice, ...], ...]


def make_plan(
    files: Sequence[SourceFile],
    source: SourceSettings,
    encode: EncodeSettings,
    *,
    bundle_digest: str,
    options: dict[str, str],
) -> Plan:
    """Cut the corpus into waves.

    Raises:
        ConfigError: a Parquet file lacks the columns that the settings name.
        SourceError: a Parquet file has no readable footer.
    """
    limit = encode.slice_megabytes * 1_000_000
    slices = [piece for i, file in enumerate(files) for piece in _slices(i, file, source, limit, options)]
    document = {
        "format": PLAN_FORMAT,
        "bundle": bundle_digest,
        "files": [file.identity() for file in files],
        "source": source.model_dump(exclude={"paths", "format", "version"}),
        "encode": encode.model_dump(
            include={"wave_megabytes", "slice_megabytes", "store_k", "impact_bits", "probe_documents", "buckets"}
        ),
    }
    waves = tuple(_waves(slices, encode.wave_megabytes * 1_000_000))
    return Plan(digest_json(document), document, tuple(files), waves)


def save_plan(plan: Plan, table: Store) -> None:
    """Write the plan beside the table unless an earlier attempt did."""
    table.put_new(f"{PROTOCOL_FOLDER}/plans/{plan.digest}.json", canonical_json(plan.document) + b"\n")


def _waves(slices: Sequence[Slice], limit: int) -> Iterator[tuple[Slice, ...]]:
    wave: list[Slice] = []
    size = 0
    for piece in slices:
        if wave and size + piece.size > limit:
            yield tuple(wave)
            wave, size = [], 0
        wave.append(piece)
        size += piece.size
    if wave:
        yield tuple(wave)


def _slices(
    ordinal: int, file: SourceFile, source: SourceSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    if file.format == "parquet":
        yield from _row_groups(ordinal, file, source, limit, options)
    elif file.format == "jsonl.gz":
        yield Slice(file, ordinal, 0, file.size, 0, file.size)
    else:
        for start in range(0, file.size, limit):
            stop = min(start + limit, file.size)
            yield Slice(file, ordinal, start, stop, 0, stop - start)


def _row_groups(
    ordinal: int, file: SourceFile, source: SourceSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    try:
        with Store(file.uri, options).open_reader(file.name) as handle:
            parquet = pq.ParquetFile(handle)
            footer, schema = parquet.metadata, parquet.schema_arrow
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{file.location} is no readable Parquet file ({error}); mend or leave it out") from error
    _check_columns(file, schema, source)
    start = size = first_row = rows = 0
    for group in range(footer.num_row_groups):
        size += footer.row_group(group).total_byte_size
        rows += footer.row_group(group).num_rows
        if size >= limit or group == footer.num_row_groups - 1:
            yield Slice(file, ordinal, start, group + 1, first_row, size)
            start, size, first_row = group + 1, 0, rows


def _check_columns(file: SourceFile, schema: pa.Schema, source: SourceSettings) -> None:
    present = set(schema.names) | {name for name, _ in file.constants}
    if source.id_field not in present:
        raise ConfigError(
            "source.id_field", f"{file.location} has no column {source.id_field}", f"there are: {sorted(present)}"
        )
    if not present & set(source.text_fields):
        raise ConfigError(
            "source.text_fields",
            f"{file.location} has none of the columns {source.text_fields}",
            f"there are: {sorted(present)}",
        )
    wanted = {
        "source.id_field": [source.id_field],
        "source.text_fields": source.text_fields,
        "source.stored_fields": source.stored_fields,
    }
    for field, names in wanted.items():
        for name in set(names) & set(schema.names):
            kind = schema.field(name).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
                raise ConfigError(field, f"column {name} of {file.location} is {kind}", "cast it to string")
