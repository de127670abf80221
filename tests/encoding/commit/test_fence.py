import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.storage import Store


def test_only_the_newest_attempt_of_a_plan_passes_the_check(tmp_path: Path):
    store = Store(str(tmp_path))
    epochs = [take_epoch(store, "p", []) for _ in range(12)]
    assert [epoch.number for epoch in epochs] == list(range(1, 13))
    for epoch in epochs[:-1]:
        with pytest.raises(FencedError, match=f"attempt 12 of plan p has taken over from attempt {epoch.number}"):
            epoch.check()
    epochs[-1].check()
    other = take_epoch(store, "another plan", [])
    assert other.number == 1
    other.check()
    epochs[-1].check()
    assert issubclass(FencedError, CommitError)


def test_concurrent_attempts_get_different_epochs(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda _: take_epoch(Store(str(tmp_path)), "p", []), range(24)))
    assert sorted(epoch.number for epoch in epochs) == list(range(1, 25))


def test_epoch_records_its_process_and_other_files_are_ignored(tmp_path: Path):
    take_epoch(Store(str(tmp_path)), "p", ["s3://corpus/a.jsonl"])
    (file,) = tmp_path.rglob("000001.json")
    record = json.loads(file.read_bytes())
    assert record["sources"] == ["s3://corpus/a.jsonl"]
    assert record.keys() == {"host", "pid", "sources", "started_at"}
    (file.parent / ".000009.json.0a.tmp").write_text("the draft of an attempt that died")
    assert take_epoch(Store(str(tmp_path)), "p", []).number == 2
