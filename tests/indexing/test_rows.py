"""Rows of a shard are sorted by id across buckets."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.base_shard import merge_by_id, spill_sorted

_ids = st.lists(st.text(alphabet="aAéz\U0001f600\0", max_size=4), unique=True, max_size=25)


def bucket(ids: list[str]) -> pa.Table:
    texts = [None if len(i) == 1 else f"text of {i}" for i in ids]
    return pa.table({"doc_id": ids, "text": texts}, schema=pa.schema([("doc_id", pa.string()), ("text", pa.string())]))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ids=_ids, buckets=st.integers(1, 5), batch_rows=st.sampled_from([1, 3, 8]))
def test_rows_of_all_buckets_are_merged_by_id(tmp_path_factory, ids, buckets, batch_rows):
    folder = tmp_path_factory.mktemp("rows")
    tables = spill_sorted([bucket(ids[i::buckets]) for i in range(buckets)], folder)
    batches = list(merge_by_id(tables, batch_rows))
    merged = [row for batch in batches for row in batch.to_pylist()]
    assert [row["doc_id"] for row in merged] == sorted(ids, key=str.encode) == sorted(ids)
    assert all(row["text"] == (None if len(row["doc_id"]) == 1 else f"text of {row['doc_id']}") for row in merged)
    assert all(batch.num_rows == batch_rows for batch in batches[:-1])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("tables", [[["a", "b"], ["b"]], [["x", "a", "x"]], [["c", "a"], ["b", "c"]]])
def test_merge_by_id_rejects_a_repeated_id(tmp_path, tables, batch_rows):
    spilled = spill_sorted([bucket(ids) for ids in tables], tmp_path)
    with pytest.raises(ArtifactError, match="is in the table twice"):
        list(merge_by_id(spilled, batch_rows))


def test_merge_by_id_of_no_rows_yields_nothing(tmp_path):
    assert list(merge_by_id(spill_sorted([bucket([])], tmp_path), 4)) == []
