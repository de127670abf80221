import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.fence import newest_attempt, take_epoch
from lsr_prod.errors import ArtifactError, CommitError, FencedError
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


def test_attempt_whose_record_was_deleted_stops(tmp_path: Path):
    store = Store(str(tmp_path))
    epoch = take_epoch(store, "p", [])
    assert abs(epoch.began() - time.time()) < 60
    (record,) = tmp_path.rglob("000001.json")
    record.unlink()
    for ask in (epoch.check, epoch.began):
        with pytest.raises(FencedError, match=r"the record of attempt 1 of plan p was deleted from .*"):
            ask()


def test_record_that_is_deleted_between_two_requests_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    epoch = take_epoch(Store(str(tmp_path)), "p", [])
    monkeypatch.setattr(Store, "entry", lambda *_: None)
    with pytest.raises(CommitError, match=r"the epoch of this attempt was deleted from .*; run the job again"):
        epoch.began()


def test_newest_attempt_has_the_newest_record_and_a_damaged_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = Store(str(tmp_path))
    assert newest_attempt(store, "p") is None
    for _ in range(3):
        take_epoch(store, "p", [])
    newest = newest_attempt(store, "p")
    assert newest is not None
    assert (newest.number, newest.host, newest.pid) == (3, socket.gethostname(), os.getpid())
    for request in ("entry", "get"):  # deleted between two requests
        with monkeypatch.context() as deleted:
            deleted.setattr(Store, request, lambda *_: None)
            assert newest_attempt(store, "p") is None
    (path,) = tmp_path.rglob("000003.json")
    record = json.loads(path.read_bytes())
    for damaged in ({**record, "pid": 0}, {**record, "pid": -4}, {**record, "pid": "x"}, {"host": "h"}, []):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ArtifactError, match=r"000003.json is damaged .*; delete it"):
            newest_attempt(store, "p")
