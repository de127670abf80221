import json
import logging

import pytest

from lsr_prod.corpus.rows import BadRow
from lsr_prod.errors import SourceError
from lsr_prod.interchange.quarantine import open_quarantine


def test_every_bad_row_is_written_and_counted_and_the_first_are_logged(tmp_path, caplog):
    path = tmp_path / "q.jsonl"
    path.write_text("of a former run")
    with caplog.at_level(logging.WARNING, "lsr_prod"), open_quarantine(path) as quarantine:
        for i in range(20):
            quarantine.add("a.jsonl", i, BadRow("broken_json", "détail", None, "{"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[3] == {
        "source": "a.jsonl", "position": 3, "reason": "broken_json", "detail": "détail", "doc_id": None, "raw": "{",
    }  # fmt: skip
    assert (len(lines), quarantine.reasons) == (20, {"broken_json": 20})
    assert len(caplog.records) == 5


def test_a_refused_reason_ends_the_work_and_leaves_no_file(tmp_path):
    def fill() -> None:
        with open_quarantine(tmp_path / "q.jsonl", ["bad_weight"]) as quarantine:
            quarantine.add("a.jsonl", 0, BadRow("broken_json", "", None, "{"))
            quarantine.add("a.jsonl", 7, BadRow("bad_weight", "detail", "d", ""))

    with pytest.raises(SourceError, match=r"a\.jsonl at 7: bad_weight, detail; nothing was written"):
        fill()
    assert list(tmp_path.iterdir()) == []
