import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.errors import CommitError
from lsr_prod.storage import Store
from lsr_prod.tables import Part, check_part, write_part

TABLE = pa.table({"doc_id": ["b", "a"], "terms": [[1], []], "title": ["x", None]})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_equal_tables_are_one_file_and_another_table_is_another(store: Store, tmp_path: Path):
    part = write_part(store, "bucket=1", TABLE)
    before = (tmp_path / part.path).stat().st_ino
    assert write_part(store, "bucket=1", TABLE) == part
    assert (tmp_path / part.path).stat().st_ino == before
    assert write_part(store, "bucket=1", TABLE.slice(1)).path != part.path
    assert pq.read_table(tmp_path / part.path, partitioning=None) == TABLE


def test_statistics_say_what_the_rows_hold(store: Store):
    part = write_part(store, "f", TABLE)
    assert (part.rows, part.size) == (2, store.size(part.path))
    assert json.loads(part.stats) == {
        "numRecords": 2,
        "minValues": {"doc_id": "a"},
        "maxValues": {"doc_id": "b"},
        "nullCount": {"doc_id": 0, "title": 1},
    }
    nobody = pa.table({"doc_id": pa.array([None], pa.string())})
    assert json.loads(write_part(store, "f", nobody).stats)["minValues"] == {}


def test_a_part_that_is_not_as_described_is_refused(store: Store, tmp_path: Path):
    part = write_part(store, "f", TABLE)
    data = (tmp_path / part.path).read_bytes()
    check_part(store, part)
    with pytest.raises(CommitError, match="has 2 rows instead of 3"):
        check_part(store, Part(part.path, part.size, 3, part.stats))
    for torn in (data[:-1], b"", data + b"x"):
        (tmp_path / part.path).write_bytes(torn)
        with pytest.raises(CommitError, match=f"has {len(torn)} bytes instead of {len(data)}"):
            check_part(store, part)
    (tmp_path / part.path).write_bytes(data[:-30] + bytes(30))
    with pytest.raises(CommitError, match="has no readable footer"):
        check_part(store, part)
    (tmp_path / part.path).unlink()
    with pytest.raises(CommitError, match="has None bytes"):
        check_part(store, part)


def test_a_part_that_is_made_again_is_young_again(store: Store, tmp_path: Path):
    part = write_part(store, "f", TABLE)
    os.utime(tmp_path / part.path, (1, 1))
    assert check_part(store, part).modified == 1
    assert write_part(store, "f", TABLE) == part
    assert check_part(store, part).modified > time.time() - 60


@pytest.mark.parametrize("left", [0, 100])
def test_a_damaged_file_under_the_name_is_left_and_the_part_takes_another(store: Store, tmp_path: Path, left: int):
    damaged = write_part(store, "f", TABLE)
    whole = (tmp_path / damaged.path).read_bytes()
    (tmp_path / damaged.path).write_bytes(whole[:left])
    part = write_part(store, "f", TABLE)
    assert part.path == damaged.path.replace(".parquet", "-1.parquet")
    assert (tmp_path / part.path).read_bytes() == whole
    assert len((tmp_path / damaged.path).read_bytes()) == left
    assert write_part(store, "f", TABLE) == part


def test_a_part_that_is_gone_meanwhile_is_written_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    part = write_part(store, "f", TABLE)
    whole = Store.refresh

    def refresh(self: Store, name: str) -> None:
        monkeypatch.undo()
        self.delete(name)  # a vacuum between the two looks
        whole(self, name)

    monkeypatch.setattr(Store, "refresh", refresh)
    assert write_part(store, "f", TABLE) == part
    check_part(store, part)
