import logging

import pyarrow.parquet as pq
import pytest

from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from lsr_prod_contrib.vectors.table_import import ImportQuarantine


def test_quarantine_counts_every_bad_row_and_logs_the_first(tmp_path, caplog):
    quarantine = ImportQuarantine(Store(str(tmp_path)), "p")
    with caplog.at_level(logging.WARNING, "lsr_prod"):
        for i in range(20):
            row = BadRow("broken_json", "détail", None, "{")
            quarantine.add(row, ordinal=0, key=7, source="a.jsonl", position=i)
    quarantine.flush()
    rows = pq.read_table(tmp_path / "plan=p" / "wave=0", partitioning=None).to_pylist()
    assert rows[3] == {
        "source": "a.jsonl", "position": 3, "reason": "broken_json", "detail": "détail", "doc_id": None, "raw": "{",
        "source_file": 7, "unread_bytes": None,
    }  # fmt: skip
    assert (len(rows), quarantine.reasons) == (20, {"broken_json": 20})
    assert len(caplog.records) == 5


@pytest.mark.parametrize("held", [1, 10**6])
def test_refused_reason_raises_and_leaves_no_file(tmp_path, monkeypatch, held):
    monkeypatch.setattr("lsr_prod.encoding.tables.quarantine_rows._HELD_BYTES", held)
    quarantine = ImportQuarantine(Store(str(tmp_path)), "p", ["bad_weight"])
    quarantine.add(BadRow("broken_json", "", None, "{"), ordinal=0, key=7, source="a.jsonl", position=0)
    with pytest.raises(SourceError, match=r"a\.jsonl at 7: bad_weight, detail; nothing was written"):
        quarantine.add(BadRow("bad_weight", "detail", "d", ""), ordinal=0, key=7, source="a.jsonl", position=7)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
