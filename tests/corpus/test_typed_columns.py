"""Random tables of pyarrow, pandas, polars and DuckDB are read with their ids, values and types, and filtered."""

import datetime as dt
import decimal
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.field_types import field_types
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.search.query.filters import Filter, field
from lsr_prod.search.shard.shard_reader import evaluate
from lsr_prod.storage.formats.index_format import attribute_column

TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=8)
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "year": (st.integers(-(1 << 62), 1 << 62), pa.int64()),
    "small": (st.integers(0, 255), pa.uint8()),
    "price": (st.floats(allow_infinity=False), pa.float64()),
    "ok": (st.booleans(), pa.bool_()),
    "day": (st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)), pa.date32()),
    "at": (MOMENTS, pa.timestamp("us", "UTC")),
    "amount": (st.decimals(-99999, 99999, places=2, allow_nan=False), pa.decimal128(9, 2)),
    "tags": (st.lists(TEXTS, max_size=3), pa.list_(pa.string())),
    "lang": (st.sampled_from(["en", "de", "fr"]), pa.string()),
    "note": (TEXTS, pa.string()),
    "rank": (st.integers(0, 9), pa.int64()),  # inside a struct
}
IDS = [pa.int32(), pa.string(), pa.decimal128(5, 0), pa.large_string(), pa.uint8()]
KINDS = {
    "year": "int64", "small": "int64", "price": "float64", "ok": "bool", "day": "date", "at": "timestamp",
    "amount": "decimal(2)", "tags": "strings", "rank": "int64",
}  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (values, _) in COLUMNS.items()}), min_size=1, max_size=12
)


def arrow_table(rows: list[dict[str, Any]], ids: pa.DataType) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, (_, kind) in COLUMNS.items()}
    meta = pa.StructArray.from_arrays([columns.pop("rank")], ["rank"])
    numbers = pa.array(range(len(rows))).cast(pa.string() if pa.types.is_decimal(ids) else ids).cast(ids)
    return pa.table({"id": numbers, "text": ["a text"] * len(rows), **columns, "meta": meta})


def write_variants(table: pa.Table, path: Path) -> None:
    """Write the types that Parquet keeps through Arrow's own schema."""
    variants = {
        "lang": pa.dictionary(pa.int8(), pa.string()),
        "note": pa.string_view(),
        "tags": pa.large_list(pa.large_string()),
        "at": pa.timestamp("us", "Asia/Tokyo"),
    }
    schema = pa.schema([one.with_type(variants.get(one.name, one.type)) for one in table.schema])
    columns = [column.cast(one.type) for column, one in zip(table.columns, schema, strict=True)]
    pq.write_table(pa.table(columns, schema), path)


def write_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute(f"COPY given TO '{path}' (FORMAT parquet)")


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "pyarrow": pq.write_table,
    "variants": write_variants,
    "pandas": lambda table, path: table.to_pandas().to_parquet(path),
    "pandas_arrow": lambda table, path: table.to_pandas(types_mapper=pd.ArrowDtype).to_parquet(path),
    "polars": lambda table, path: pl.from_arrow(table).write_parquet(path),
    "duckdb": write_duckdb,
}


def read(path: Path) -> tuple[dict[str, str], pa.Table]:
    """Return the types of the stored fields, and the rows as the encode job reads them."""
    source = SourceSettings(
        paths=[str(path)],
        id_field="id",
        text_fields=["text"],
        stored_fields=list(COLUMNS),
        columns={"rank": "meta.rank"},
    )
    files = list(resolve_source(source, {}))
    types = field_types(source, files, {}, None)
    source = source.model_copy(update={"types": types})
    pieces = cut_files(enumerate(files), source, 1 << 30, {})
    return types, pa.concat_tables(table for piece in pieces for table in Reader(source, 1, {}).read(piece))


def plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, ids=st.sampled_from(IDS), bound=st.integers(0, 11))
def test_values_types_and_filters_are_those_of_the_source(
    writer: str, rows: list[dict[str, Any]], ids: pa.DataType, bound: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        WRITERS[writer](arrow_table(rows, ids), path)
        types, found = read(path)
    present = {name for name in COLUMNS if any(row[name] is not None for row in rows)}
    if not writer.startswith("pandas"):  # its integers with nulls are floats, and its columns of None have no type
        assert {name: kind for name, kind in types.items() if name in present} == {
            name: kind for name, kind in KINDS.items() if name in present
        }
    assert found["reason"].null_count == len(rows)
    assert found["doc_id"].to_pylist() == [str(i) for i in range(len(rows))]
    for name in COLUMNS:
        expected = [plain(row[name]) for row in rows]
        if writer == "pandas" and name in ("year", "small") and None in expected:
            expected = [None if value is None else float(value) for value in expected]
        assert found[f"stored.{name}"].to_pylist() == expected, name
    columns = [found[f"stored.{name}"].combine_chunks() for name in COLUMNS]
    batch = pa.RecordBatch.from_arrays(columns, [attribute_column(name) for name in COLUMNS])
    reference = rows[bound % len(rows)]
    for name, expression, truth in conditions(reference):
        if name in present and (types.get(name, "string") == KINDS.get(name, "string")):
            wanted = [plain(row[name]) is not None and truth(row[name]) for row in rows]
            assert np.flatnonzero(evaluate(expression, [batch])).tolist() == np.flatnonzero(wanted).tolist(), expression


def conditions(row: dict[str, Any]) -> list[tuple[str, Filter, Callable[[Any], bool]]]:
    """Return filters with the values of a row, and what they decide."""
    found: list[tuple[str, Filter, Callable[[Any], bool]]] = []
    for name, value in row.items():
        if plain(value) is None:
            continue
        if name == "tags":
            if value:
                found += [(name, field(name) == value[0], lambda tags, one=value[0]: one in tags)]
                found += [(name, ~field(name).is_in(value), lambda tags, some=value: not set(some) & set(tags))]
            continue
        found.append((name, field(name) == value, lambda other, one=value: other == one))
        found.append((name, field(name).is_in([value]), lambda other, one=value: other == one))
        if name != "ok":
            found.append((name, field(name) >= value, lambda other, one=value: other >= one))
            found.append((name, field(name) < value, lambda other, one=value: other < one))
    return found


CSV = (
    "id,text,year,price,ok,day,at,zip,mixed\n"
    "1,a,2001,1.5,true,2020-01-01,2020-01-01T10:00,01234,7\n"
    "2,b,,2,FALSE,,,99,x\n"
)
JSON = (
    '{"id": 1, "text": "a", "year": 2001, "price": 1.5, "ok": true, "tags": ["x", null], "mixed": 7}\n'
    '{"id": 2, "text": "b", "year": null, "price": 2, "ok": false, "tags": "y", "mixed": "x"}\n'
)


def test_types_of_csv_and_json_follow_the_first_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.jsonl").write_text(JSON)
    names = ["year", "price", "ok", "day", "at", "zip", "tags", "mixed"]
    base = SourceSettings(paths=["a"], id_field="id", text_fields=["text"], stored_fields=names)
    found = {}
    for name in ("a.csv", "a.jsonl"):
        source = base.model_copy(update={"paths": [str(tmp_path / name)]})
        files = list(resolve_source(source, {}))
        found[name] = field_types(source, files, {}, None)
        source = source.model_copy(update={"types": found[name]})
        (piece,) = cut_files(enumerate(files), source, 1 << 30, {})
        rows = pa.concat_tables(Reader(source, 1, {}).read(piece))
        assert rows["reason"].null_count == 2
        assert rows["stored.mixed"].to_pylist() == ["7", "x"]
        assert rows["stored.year"].to_pylist() == [2001, None]
        assert rows["stored.ok"].to_pylist() == [True, False]
    numbers = {"year": "int64", "price": "float64", "ok": "bool"}
    assert found["a.csv"] == numbers | {"day": "date", "at": "timestamp"}
    assert found["a.jsonl"] == numbers | {"tags": "strings"}
    assert rows["stored.tags"].to_pylist() == [["x"], ["y"]]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["7", "9223372036854775809"], "string"),
        (["-9223372036854775809", "1.5"], "string"),
        (["7", "1.5"], "float64"),
        (["1e30", "2.5"], "float64"),
    ],
)
def test_integers_of_more_than_64_bits_are_strings(tmp_path: Path, ending: str, values: list[str], kind: str) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "csv":
        path.write_text("_id,text,n\n" + "".join(f"{i},x,{value}\n" for i, value in enumerate(values)))
    else:
        path.write_text("".join(f'{{"_id": "{i}", "text": "x", "n": {value}}}\n' for i, value in enumerate(values)))
    source = SourceSettings(paths=[str(path)], text_fields=["text"], stored_fields=["n"])
    files = list(resolve_source(source, {}))
    types = field_types(source, files, {}, None)
    assert types == ({} if kind == "string" else {"n": kind})
    (piece,) = cut_files(enumerate(files), source, 1 << 30, {})
    rows = pa.concat_tables(Reader(source.model_copy(update={"types": types}), 1, {}).read(piece))
    if kind == "string":
        assert sorted(rows["stored.n"].to_pylist()) == sorted(values)


def test_a_value_that_does_not_fit_makes_one_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"_id": "a", "text": "a", "when": 1612111000000, "price": "9.99"}\n'
        '{"_id": "b", "text": "b", "when": "soon", "price": "9.99"}\n'
        '{"_id": "c", "text": "c", "when": 1612111000000, "price": "9.999"}\n'
        '{"_id": "d", "text": "d", "when": "", "price": null}\n'
    )
    source = SourceSettings(
        paths=[str(tmp_path / "a.jsonl")],
        stored_fields=["when", "price"],
        types={"when": "epoch_ms", "price": "decimal(2)"},
    )
    files = list(resolve_source(source, {}))
    assert field_types(source, files, {}, None) == source.types
    (piece,) = cut_files(enumerate(files), source, 1 << 30, {})
    rows = pa.concat_tables(Reader(source, 1, {}).read(piece))
    assert rows["reason"].to_pylist() == [None, "wrong_type", "wrong_type", None]
    details = rows["detail"].to_pylist()
    assert "field when: 'soon'" in details[1]
    assert "field price: '9.999' is no decimal(2)" in details[2]
    moment = dt.datetime(2021, 1, 31, 16, 36, 40, tzinfo=dt.UTC)
    assert rows["stored.when"].to_pylist() == [moment, None, None, None]
    assert rows["stored.price"].to_pylist() == [decimal.Decimal("9.99"), None, None, None]
