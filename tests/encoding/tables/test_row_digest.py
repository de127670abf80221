"""Digests of rows against a plain sum, and in the names of parts."""

import hashlib
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.encoding.tables import TableFile, write_part
from lsr_prod.encoding.tables.live_rows import part_digest
from lsr_prod.encoding.tables.part import combine_digests, digest_in_name, row_digest
from lsr_prod.storage import Store

SCHEMA = pa.schema(
    [
        ("doc_id", pa.large_string()),
        ("terms", pa.list_(pa.int32())),
        ("impacts", pa.list_(pa.int16())),
        ("content_hash", pa.large_string()),
        ("title", pa.large_string()),
    ]
)
vectors = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**15 - 1)), max_size=5)
rows = st.lists(st.tuples(st.text(max_size=3), vectors, st.text(max_size=3)), max_size=8)


def table_of(rows: list[Any]) -> pa.Table:
    records = [
        {"doc_id": name, "terms": [t for t, _ in vector], "impacts": [i for _, i in vector], "content_hash": content}
        for name, vector, content in rows
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


def plain(rows: list[Any]) -> int:
    total = 0
    for name, vector, content in rows:
        packed = [
            struct.pack(f"<{len(vector)}i", *column) for column in ([t for t, _ in vector], [i for _, i in vector])
        ]
        fields = [name.encode(), *packed, content.encode()]
        row = b"".join(struct.pack(">Q", len(field)) + field for field in fields)
        total += int(hashlib.sha256(row).hexdigest(), 16)
    return total % 2**256


@given(rows, st.integers(0, 8))
def test_digest_is_the_sum_over_rows_also_of_slices_and_chunks(rows: list[Any], cut: int):
    table = table_of(rows)
    assert row_digest(table) == plain(rows)
    assert row_digest(table.slice(cut)) == plain(rows[cut:])
    assert row_digest(pa.concat_tables([table.slice(cut), table.slice(0, cut)])) == plain(rows)


def test_part_has_the_digest_of_its_rows_in_its_name(tmp_path: Path):
    store, rows = Store(str(tmp_path)), table_of([("a", [(1, 2)], "h"), ("b", [], "i")])
    part = write_part(store, "bucket=0", rows, "plan/0")
    assert (
        digest_in_name(part.path)
        == row_digest(rows)
        == part_digest(store, TableFile(part.path, part.size, 2, {}), verify=True)
    )
    assert combine_digests([row_digest(rows)]) in part.path
    forged = part.path.replace(f"{row_digest(rows):064x}", f"{1:064x}")
    (tmp_path / forged).write_bytes((tmp_path / part.path).read_bytes())
    named = TableFile(forged, part.size, 2, {})
    assert (part_digest(store, named), part_digest(store, named, verify=True)) == (1, row_digest(rows))
    (tmp_path / part.path).write_bytes(b"damaged")
    assert digest_in_name(write_part(store, "bucket=0", rows, "plan/0").path) == row_digest(rows)
    assert digest_in_name(write_part(store, "bucket=0", rows.drop_columns(["terms"]), "plan/0").path) is None
