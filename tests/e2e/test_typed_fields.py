"""The first evening: a Parquet file with typed columns becomes a filtered, faceted hybrid search with types."""

import datetime as dt
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod import Searcher
from lsr_prod.jobs.command import load
from lsr_prod.search import Filter, Hybrid, field, filter_from_json
from lsr_prod.serving.wire import result_from_json, result_to_json
from tests.serving.test_scatter import scattering

YAML = """\
source:
  paths: [{folder}/docs.parquet]
  id_field: id
  text_fields: [text]
  stored_fields: [text, year, price, ok, day, at, amount, tags, lang]
encode:
  bundle: {bundle}
  table: {folder}/table
index:
  output: {folder}/index
  text_fields: [text]
  shards: 3
  bm25: true
"""
N = 240
FIELDS = ["year", "price", "ok", "day", "at", "amount", "tags", "lang"]


Columns = dict[str, list[Any]]


@pytest.fixture(scope="module")
def columns() -> Columns:
    """Return the documents by column; every column but the id and the text has nulls."""
    random = np.random.default_rng(7)

    def column(make: Any) -> list[Any]:
        return [None if random.random() < 0.1 else make(i) for i in range(N)]

    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return {
        "id": list(range(1000, 1000 + N)),
        "text": [f"parse a date string {i}" if i % 3 else f"hold a lock {i}" for i in range(N)],
        "year": column(lambda i: 2000 + i % 20),
        "price": column(lambda i: i / 8),
        "ok": column(lambda i: i % 2 == 0),
        "day": column(lambda i: dt.date(2024, 1, 1) + dt.timedelta(days=i)),
        "at": column(lambda i: start + dt.timedelta(hours=i, milliseconds=i)),
        "amount": column(lambda i: decimal.Decimal(i) / 4),
        "tags": column(lambda i: ["a", "b", "c"][: i % 4]),
        "lang": column(lambda i: ["en", "de"][i % 2]),
    }


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path, columns: Columns, ray_local: None) -> Path:
    folder = tmp_path_factory.mktemp("typed")
    types = {"year": pa.int32(), "at": pa.timestamp("ms", "Europe/Berlin"), "amount": pa.decimal128(9, 2)}
    table = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(table), folder / "docs.parquet")
    config = folder / "deployment.yaml"
    config.write_text(YAML.format(folder=folder, bundle=tiny_bundle))
    assert len(YAML.splitlines()) <= 15
    for job in ("encode", "index build"):
        assert load(job).run(["--config", str(config)]) == 0
    return folder / "index"


@pytest.fixture(params=["local", "scattered"])
def searcher(request: pytest.FixtureRequest, index: Path) -> Any:
    """Return a searcher, and one over three groups of shards."""
    return Searcher.open(index) if request.param == "local" else scattering(index, 3)


@pytest.mark.long
def test_attributes_have_the_types_of_the_file(index: Path) -> None:
    with Searcher.open(index) as searcher:
        assert dict(searcher.version.attributes) == {
            "year": "int64", "price": "float64", "ok": "bool", "day": "date", "at": "timestamp",
            "amount": "decimal(2)", "tags": "strings", "lang": "string",
        }  # fmt: skip


def ids(searcher: Any, expression: Filter) -> set[int]:
    sent = filter_from_json(json.loads(json.dumps(expression.to_json())))
    hits = searcher.search("date lock", N, hybrid=Hybrid(words=1), filter=sent).hits
    return {int(hit.doc_id) for hit in hits}


DAY, MOMENT, PRICE = dt.date(2024, 3, 1), dt.datetime(2024, 1, 5, 12, tzinfo=dt.UTC), decimal.Decimal("10.25")
CASES: list[tuple[str, Filter, Callable[[Any], bool]]] = [
    ("year", field("year") >= 2012, lambda value: value >= 2012),
    ("year", field("year").is_in([2001, 2002]), lambda value: value in (2001, 2002)),
    ("price", field("price").between(3, 7.5), lambda value: 3 <= value <= 7.5),
    ("ok", ~(field("ok") == False), lambda value: value),  # noqa: E712
    ("day", field("day") < DAY, lambda value: value < DAY),
    ("day", field("day") >= "2024-03-01", lambda value: value >= DAY),
    ("at", field("at") > MOMENT, lambda value: value > MOMENT),
    ("amount", field("amount") <= PRICE, lambda value: value <= PRICE),
    ("amount", field("amount") == 7.75, lambda value: value == decimal.Decimal("7.75")),
    ("tags", field("tags") == "b", lambda value: "b" in value),
    ("tags", ~field("tags").is_in(["b", "c"]), lambda value: not {"b", "c"} & set(value)),
    ("lang", field("lang") == "de", lambda value: value == "de"),
]


@pytest.mark.long
def test_filters_of_every_type_find_what_the_file_has(searcher: Any, columns: Columns) -> None:
    for name, expression, holds in CASES:
        expected = {1000 + row for row, value in enumerate(columns[name]) if value is not None and holds(value)}
        assert 0 < len(expected) < N
        assert ids(searcher, expression) == expected, expression
    for name in FIELDS:
        expected = {1000 + row for row, value in enumerate(columns[name]) if value is None}
        assert ids(searcher, field(name).is_null()) == expected, name


def test_hits_of_every_type_are_sorted_and_counted_as_by_pandas(searcher: Any, columns: Columns) -> None:
    rows = [{name: columns[name][row] for name in ["text", *FIELDS]} for row in range(N)]
    for name in FIELDS:
        sort = {} if name == "tags" else {"sort": f"-{name}"}
        result = searcher.search(
            "date lock", N, hybrid=Hybrid(words=1), fields=["text", *FIELDS], facets=[name], facet_size=1000, **sort
        )
        assert result_from_json(json.loads(json.dumps(result_to_json(result)))) == result
        assert [hit.fields for hit in result.hits] == [rows[int(hit.doc_id) - 1000] for hit in result.hits]
        series = pd.Series([row[name] for row in rows], dtype=object)
        counts = series.explode().dropna().value_counts()
        assert dict(result.facets[0].values) == counts.to_dict()
        assert result.facets[0].missing == int(series.explode().isna().sum())
        if sort:
            found = [hit.fields[name] for hit in result.hits]
            assert found == [*series.dropna().sort_values(ascending=False), *[None] * int(series.isna().sum())]


@pytest.mark.long
def test_later_nights_keep_types_through_increments_and_compaction(
    tmp_path: Path, tiny_bundle: Path, columns: Columns
) -> None:
    """A changed value, a removed and a new document; the delta shard and merged parts have the types of the table."""
    source, names = tmp_path / "source", ["id", "text", "year", "day", "amount", "tags"]
    source.mkdir()
    rows = [{name: columns[name][i] for name in names} for i in range(40)]
    types = {"year": pa.int32(), "amount": pa.decimal128(9, 2), "tags": pa.list_(pa.string())}
    schema = pa.schema([(name, types.get(name) or pa.array(columns[name]).type) for name in names])

    def night(number: int, some: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pq.write_table(pa.Table.from_pylist(some, schema), source / f"{number}.parquet")
        for job in ("encode", "table maintain", "index build"):
            assert load(job).run(["--config", str(config)]) == 0
        with Searcher.open(tmp_path / "index") as searcher:
            ids = [str(row["id"]) for row in some]
            assert searcher.documents == 40
            return [dict(one or {}) for one in searcher.get(ids)]

    config = tmp_path / "deployment.yaml"
    text = YAML.format(folder=tmp_path, bundle=tiny_bundle).replace("docs.parquet", "source")
    text = text.replace("year, price, ok, day, at, amount, tags, lang", ", ".join(names[2:]))
    config.write_text(f"{text}  max_delta: 0.5\nmaintain: {{table: {tmp_path}/table}}\n")
    stored = [{name: row[name] for name in names[1:]} for row in rows]
    assert night(1, rows) == stored
    (source / "1.parquet").unlink()
    rows[3] |= {"year": 1999, "tags": None, "amount": decimal.Decimal("0.05")}
    rows[7] |= {"id": 5000, "day": dt.date(1969, 12, 31)}
    assert night(2, rows) == [{name: row[name] for name in names[1:]} for row in rows]
    with Searcher.open(tmp_path / "index") as searcher:
        assert {shard.role for shard in searcher.version.shards} == {"base", "delta"}
        assert ids(searcher, field("year") == 1999) == {1003}
        assert ids(searcher, field("day") < dt.date(1970, 1, 1)) == {5000}
