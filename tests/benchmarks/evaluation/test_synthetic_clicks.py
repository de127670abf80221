from collections import Counter

import pyarrow.parquet as pq

from benchmarks.evaluation.synthetic_clicks import write_log


def test_shuffled_log_has_the_rows_of_the_other_in_another_order(tmp_path):
    made = write_log(tmp_path / "a.parquet", 5000, seed=1)
    assert write_log(tmp_path / "b.parquet", 5000, seed=1, shuffled=2) == made
    first, second = (pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert first != second
    rows = [Counter(tuple(row.values()) for row in table.to_pylist()) for table in (first, second)]
    assert rows[0] == rows[1]
    assert first["doc_id"].null_count == made.bad > 0
    documents = Counter(first["doc_id"].to_pylist()).most_common(1)
    assert documents[0][1] > 20  # a few documents have many clicks
