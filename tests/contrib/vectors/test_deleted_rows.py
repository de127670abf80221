"""Exports of a table whose rows were deleted with deletion vectors."""

import json

from lsr_prod.encoding.tables import open_table
from lsr_prod.storage import Store
from lsr_prod_contrib.vectors.table_export import TableVectors, export_csr, export_jsonl, ids_path
from tests.encoding.tables.deletions import delete_ids
from tests.indexing.corpus import Doc, make_table


def test_export_has_no_deleted_rows(bundle, vocabulary, tmp_path):
    make_table(tmp_path / "table", {f"d{i}": Doc({i % 5: 9}) for i in range(40)}, bundle)
    store = Store(str(tmp_path / "table"))
    delete_ids(store, ["d3", "d30"])
    vectors = TableVectors.open(open_table(store), vocabulary)
    wanted = {f"d{i}" for i in range(40)} - {"d3", "d30"}
    assert export_jsonl(vectors, tmp_path / "a.jsonl") == (38, 38)
    assert {json.loads(line)["id"] for line in (tmp_path / "a.jsonl").read_text().splitlines()} == wanted
    assert export_csr(vectors, tmp_path / "a.npz") == (38, 38)
    assert {json.loads(line) for line in ids_path(tmp_path / "a.npz").read_text().splitlines()} == wanted
