"""Delta shards: digests of rows, and the documents that a shard holds."""

import pyarrow as pa
import pytest

from lsr_prod.indexing.changes import row_schema
from lsr_prod.indexing.delta import Selection, build_delta, digest_rows, digest_selection, plan_delta
from lsr_prod.indexing.index_plan import plan_index
from lsr_prod.indexing.tombstones import as_ids, read_ids
from tests.indexing.corpus import FIELDS, Doc, rows
from tests.indexing.increments import deployment, make_world

CORPUS = {f"doc{i:03d}": Doc({1 + i: 9, 2: 3}, f"text {i}") for i in range(40)}
COLUMNS = ["doc_id", "terms", "impacts", *FIELDS]


def digest(corpus, **columns):
    table = rows(corpus, 4).select(COLUMNS)
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return digest_rows(table)


def test_digest_rows_ignores_chunks_and_slices():
    table = rows(CORPUS, 4).select(COLUMNS)
    parts = pa.concat_tables([table.slice(0, 7), table.slice(7, 20), table.slice(27)])
    assert digest_rows(parts) == digest_rows(table) == digest_rows(parts.combine_chunks())
    assert digest_rows(table.slice(3, 5)) == digest_rows(
        pa.Table.from_pylist(table.slice(3, 5).to_pylist(), table.schema)
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"doc_id": ["doc000", "doc0011"]},
        {"terms": [[1, 2, 2], [2]]},
        {"terms": [[1], [2, 2, 2]]},
        {"impacts": [[9, 3], [9, 4]]},
        {"text": ["text 0text", " 1"]},
        {"text": ["text 0", None]},
        {"title": ["", None]},
    ],
)
def test_digest_rows_depends_on_every_value(columns):
    two = {i: CORPUS[i] for i in ("doc000", "doc001")}
    assert digest(two, **columns) != digest(two)


def test_delta_shard_holds_the_selected_documents(tmp_path):
    plan = plan_index(make_world(tmp_path, CORPUS))
    table = plan.snapshot
    selections = []
    for bucket in range(4):
        files = tuple(file for file in table.files() if file.partition["bucket"] == str(bucket))
        ids = as_ids(["doc003", "doc004", "doc005", "doc038", "unknown"])
        selections.append(Selection(bucket, table.store, files, row_schema(table, FIELDS), ids))
    shard = plan_delta(plan, selections, [digest_selection(one) for one in selections])
    assert (shard.documents, shard.role, shard.buckets) == (4, "delta", (0, 1, 2, 3))
    built = build_delta(shard, selections, tmp_path / "index")
    assert not built.reused
    assert built.manifest.role == "delta"
    found = read_ids(tmp_path / "index", built.manifest).to_pylist()
    assert sorted(found) == ["doc003", "doc004", "doc005", "doc038"]
    assert build_delta(shard, selections, tmp_path / "index").reused
    other = plan_index(deployment(tmp_path, dk=1))
    assert plan_delta(other, selections, [digest_selection(one) for one in selections]).sha != shard.sha
