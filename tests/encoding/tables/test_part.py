import io
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.encoding.tables import Part, check_part, read_all_rows, write_part
from lsr_prod.encoding.tables.part import _statistics, count_rows, large_strings
from lsr_prod.errors import ArtifactError, CommitError, StorageError
from lsr_prod.storage import Store

TABLE = pa.table({"doc_id": ["b", "a"], "terms": [[1], []], "title": ["x", None]})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_write_part_reuses_the_file_of_an_equal_table(store: Store, tmp_path: Path):
    part = write_part(store, "bucket=1", TABLE, "plan/0")
    before = (tmp_path / part.path).stat().st_ino
    assert write_part(store, "bucket=1", TABLE, "plan/0") == part
    assert (tmp_path / part.path).stat().st_ino == before
    assert write_part(store, "bucket=1", TABLE.slice(1), "plan/0").path != part.path
    assert write_part(store, "bucket=1", TABLE, "plan/1").path != part.path
    assert pq.read_table(tmp_path / part.path, partitioning=None) == TABLE


def test_large_strings_are_stored_as_strings_in_row_groups_that_hold_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    large = TABLE.cast(large_strings(TABLE.schema))
    assert write_part(store, "f", large, "plan/0") == write_part(store, "f", TABLE, "plan/0")
    monkeypatch.setattr("lsr_prod.encoding.tables.part._PIECE_BYTES", 40)
    rows = pa.table(
        {"doc_id": [f"{i:02}" for i in range(30)], "text": [None if i % 3 else "ab" * i for i in range(30)]}
    )
    part = write_part(store, "f", rows.cast(large_strings(rows.schema)), "plan/0")
    found = pq.ParquetFile(tmp_path / part.path)
    assert (found.schema_arrow, found.read()) == (rows.schema, rows)
    assert found.metadata.num_row_groups > 10
    assert part.rows == 30


def test_statistics_hold_bounds_and_null_counts(store: Store):
    part = write_part(store, "f", TABLE, "plan/0")
    assert (part.rows, part.size) == (2, store.size(part.path))
    assert json.loads(part.stats) == {
        "numRecords": 2,
        "minValues": {"doc_id": "a"},
        "maxValues": {"doc_id": "b"},
        "nullCount": {"doc_id": 0, "title": 1},
    }
    no_id = pa.table({"doc_id": pa.array([None], pa.string())})
    assert json.loads(write_part(store, "f", no_id, "plan/0").stats)["minValues"] == {}


def test_check_part_rejects_a_file_that_differs_from_its_part(store: Store, tmp_path: Path):
    part = write_part(store, "f", TABLE, "plan/0")
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


def test_write_part_touches_a_part_that_it_reuses(store: Store, tmp_path: Path):
    part = write_part(store, "f", TABLE, "plan/0")
    os.utime(tmp_path / part.path, (1, 1))
    assert check_part(store, part).modified == 1
    assert write_part(store, "f", TABLE, "plan/0") == part
    assert check_part(store, part).modified > time.time() - 60


@settings(deadline=None)
@given(
    ids=st.lists(
        st.integers(250, 260).flatmap(lambda size: st.text("ab\ud7ff\ue000\U0010ffff", min_size=size, max_size=size)),
        min_size=1,
        max_size=3,
    )
)
def test_statistics_of_long_ids_are_short_bounds(ids: list[str]):
    found = _statistics(pa.table({"doc_id": ids}))
    smallest, largest = found["minValues"]["doc_id"], found["maxValues"].get("doc_id")
    assert smallest <= min(ids)
    assert largest is None or largest >= max(ids)
    assert max(len(smallest), len(largest or "")) <= 256
    assert (largest or "").encode().decode() == (largest or "")
    assert max(map(len, ids)) > 256 or (smallest, largest) == (min(ids), max(ids))


def test_text_without_a_larger_short_one_has_no_upper_bound():
    found = _statistics(pa.table({"doc_id": ["\U0010ffff" * 300]}))
    assert (len(found["minValues"]["doc_id"]), found["maxValues"]) == (256, {})


def test_new_part_that_cannot_be_read_back_is_not_written_again(store: Store, monkeypatch: pytest.MonkeyPatch):
    checks = []

    def refuse_once(*arguments: object) -> None:
        checks.append(arguments)
        if len(checks) == 1:
            raise CommitError("truncated")

    monkeypatch.setattr("lsr_prod.encoding.tables.part.check_part", refuse_once)
    with pytest.raises(CommitError, match="truncated"):
        write_part(store, "f", TABLE, "plan/0")


def test_missing_or_damaged_part_cannot_be_read(store: Store, tmp_path: Path):
    with pytest.raises(ArtifactError, match=r"f/x\.parquet cannot be read \(.*\); encode the table again"):
        read_all_rows(store, "f/x.parquet")
    part = write_part(store, "f", TABLE, "plan/0")
    (tmp_path / part.path).write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_all_rows(store, part.path)


def test_part_that_cannot_be_read_now_is_not_called_damaged(store: Store, monkeypatch: pytest.MonkeyPatch):
    class Busy(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise StorageError("the store answers 503; run again")

    part = write_part(store, "f", TABLE, "plan/0")
    monkeypatch.setattr(Store, "open_reader", lambda *_: Busy(bytes(1000)))
    for read in (read_all_rows, count_rows):
        with pytest.raises(StorageError, match="503"):
            read(store, part.path)


def test_ids_and_keys_have_their_own_encodings_and_lists_a_dictionary(store: Store, tmp_path: Path):
    table = pa.table({"doc_id": ["a", "b"], "content_key": [1, 2], "terms": [[1], [1, 2]], "title": ["x", "x"]})
    part = write_part(store, "f", table, "plan/0")
    metadata = pq.read_metadata(tmp_path / part.path)
    assert metadata.num_row_groups == 1
    columns = [metadata.row_group(0).column(number) for number in range(4)]
    encodings = {column.path_in_schema: {*column.encodings} for column in columns}
    assert "DELTA_BYTE_ARRAY" in encodings["doc_id"]
    assert "RLE_DICTIONARY" not in encodings["content_key"]
    assert "RLE_DICTIONARY" in encodings["terms.list.element"] & encodings["title"]


def test_only_columns_of_text_are_cut_into_row_groups(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lsr_prod.encoding.tables.part._PIECE_BYTES", 1000)
    lists = pa.table({"doc_id": pa.array(["a", "b"], pa.large_string()), "terms": [[1] * 500] * 2})
    assert pq.read_metadata(tmp_path / write_part(store, "f", lists, "plan/0").path).num_row_groups == 1
    texts = pa.table({"title": pa.array(["x" * 900] * 2, pa.large_string())})
    assert pq.read_metadata(tmp_path / write_part(store, "f", texts, "plan/0").path).num_row_groups == 2


def test_statistics_of_ids_of_a_megabyte_are_short(store: Store):
    part = write_part(store, "f", pa.table({"doc_id": [f"{i}" + "x" * 1_000_000 for i in range(3)]}), "plan/0")
    assert len(part.stats) < 2000


@pytest.mark.parametrize("left", [0, 100])
def test_write_part_takes_another_name_if_a_damaged_file_has_it(store: Store, tmp_path: Path, left: int):
    damaged = write_part(store, "f", TABLE, "plan/0")
    whole = (tmp_path / damaged.path).read_bytes()
    (tmp_path / damaged.path).write_bytes(whole[:left])
    part = write_part(store, "f", TABLE, "plan/0")
    assert part.path == damaged.path.replace(".parquet", "-1.parquet")
    assert (tmp_path / part.path).read_bytes() == whole
    assert len((tmp_path / damaged.path).read_bytes()) == left
    assert write_part(store, "f", TABLE, "plan/0") == part


def test_write_part_writes_a_part_again_after_a_vacuum(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    part = write_part(store, "f", TABLE, "plan/0")
    whole = Store.touch

    def touch(self: Store, name: str) -> None:
        monkeypatch.undo()
        self.delete(name)  # a vacuum between the check and the touch
        whole(self, name)

    monkeypatch.setattr(Store, "touch", touch)
    assert write_part(store, "f", TABLE, "plan/0") == part
    check_part(store, part)
