import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.encoding.tables.live_rows import build_rows, content_columns, part_schema, replace_source
from lsr_prod.storage.formats.table_format import TableProperties

PROPERTIES = TableProperties(
    bundle_digest="b",
    vocabulary_sha256="v",
    impact_step=0.5,
    impact_bits=8,
    store_k=4,
    buckets=2,
    stored_fields=("title",),
    vocabulary_size=100,
)


HASHES = ["0000000100000000", "0000000200000000", "ffffffff00000000"]


def make_rows() -> pa.Table:
    return build_rows(
        PROPERTIES,
        pa.array(["a", "b", "c"]),
        (np.array([0, 2, 2, 3]), pa.array([7, 3, 9], pa.int32()), np.array([5, 1, 255], np.int16)),
        pa.array(HASHES),
        pa.array([1, 1, 2]),
        {"title": pa.array(["A", None, "C"])},
    )


def test_build_rows_fills_every_column_of_a_part() -> None:
    rows = make_rows()
    assert rows.schema == part_schema(PROPERTIES)
    assert rows.schema.field("title").type == pa.large_string()
    found = {name: rows[name].to_pylist() for name in rows.column_names}
    assert found == {
        "doc_id": ["a", "b", "c"],
        "terms": [[7, 3], [], [9]],
        "impacts": [[5, 1], [], [255]],
        "content_hash": HASHES,
        "content_key": [1, 2, -1],
        "source_file": [1, 1, 2],
        "title": ["A", None, "C"],
    }


def test_build_rows_rejects_more_terms_than_offsets_address() -> None:
    vectors = np.array([0, 1 << 31]), pa.array([7], pa.int32()), np.array([5], np.int16)
    with pytest.raises(pa.ArrowInvalid):
        build_rows(
            PROPERTIES, pa.array(["a"]), vectors, pa.array(HASHES[:1]), pa.array([1]), {"title": pa.array(["A"])}
        )


def test_replace_source_keeps_the_columns_of_the_content() -> None:
    rows = make_rows().select(content_columns(PROPERTIES))
    moved = replace_source(PROPERTIES, rows, pa.array([8, 8, 9]), {"title": pa.array(["x", "y", "z"])})
    assert moved.schema == part_schema(PROPERTIES)
    assert moved.select(rows.column_names) == rows
    assert moved["source_file"].to_pylist() == [8, 8, 9]
    assert moved["title"].to_pylist() == ["x", "y", "z"]
