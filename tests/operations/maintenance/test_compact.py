"""Compaction merges small parts and keeps the rows of the table, also with concurrent commits."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.tables import Part, TableFile, read_part, write_part
from lsr_prod.encoding.tables.live_rows import file_schema
from lsr_prod.encoding.tables.sparse_table import table_digest
from lsr_prod.errors import ArtifactError
from lsr_prod.operations.maintenance.compact import Merge, compact, merge_parts, plan_merges
from lsr_prod.storage import Store
from tests.encoding.commit.test_committer import Interrupted
from tests.encoding.made_tables import as_wave, ids_of, make_cell, make_tables, newest


def encoded(folder: Path, waves: Sequence[str]) -> tuple[Store, Committer]:
    """Return a table with one part per wave and bucket, and its committer."""
    table, quarantine = make_tables(folder)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, ids in enumerate(waves):
        cells = [make_cell(table, quarantine, wave, part, cell=cell) for cell, part in enumerate(ids.split()) if part]
        assert committer.commit(as_wave(wave, *cells))
    return table, committer


def test_compact_merges_parts_of_a_bucket_into_one_sorted_part(tmp_path: Path):
    table, _ = encoded(tmp_path, ["dz ab", "ca q", "m x"])
    digest, before = table_digest(table.uri), newest(table)
    done = compact(table, 1_000_000)
    assert (done.parts_before, done.parts_after, done.parts_merged, done.merges_skipped, done.commits) == (
        6,
        2,
        6,
        0,
        1,
    )
    assert table_digest(table.uri) == digest
    for file in newest(table).files():
        ids = pq.ParquetFile(Path(table.uri) / file.path).read()["doc_id"].to_pylist()
        assert ids == sorted(ids)
        assert len(ids) == file.rows == 4 + (file.partition["bucket"] == "0")
    again = compact(table, 1_000_000)
    assert (again.parts_merged, again.commits, newest(table).version) == (0, 0, before.version + 1)


@pytest.mark.slow
def test_parts_with_more_than_two_gigabytes_of_text_are_merged(tmp_path: Path):
    """Needs about 10 GB of memory."""
    store, count = Store(str(tmp_path)), 11
    files = []
    for name in "ba":
        ids = pa.array([f"{name}{i:02}" for i in range(count)])
        text = pa.chunked_array([pa.array(["x" * 100_000_000], pa.large_string())] * count)
        part = write_part(store, "bucket=0", pa.table({"doc_id": ids, "text": text}), "plan/0")
        files.append(TableFile(part.path, part.size, part.rows, {"bucket": "0"}))
    merged = merge_parts(store, Merge({"bucket": "0"}, tuple(files)))
    found = pq.ParquetFile(tmp_path / merged.path)
    assert (merged.rows, found.metadata.num_row_groups, found.schema_arrow.field("text").type) == (22, 4, pa.string())
    assert found.read(["doc_id"])["doc_id"].to_pylist() == [f"{name}{i:02}" for name in "ab" for i in range(count)]


def test_plan_merges_takes_only_small_parts_up_to_the_target_size(tmp_path: Path):
    table, _ = encoded(tmp_path, [c * 1 for c in "abcdefgh"])
    sizes = {file.size for file in newest(table).files()}
    target = 3 * max(sizes) + 1
    merges = plan_merges(newest(table).file_table(), target)
    assert sorted(len(merge.files) for merge in merges) == [2, 3, 3]
    assert plan_merges(newest(table).file_table(), max(sizes)) == []


def test_wave_prepared_before_a_compaction_commits_after_it(tmp_path: Path):
    table, committer = encoded(tmp_path, ["a", "b"])
    cell = make_cell(table, committer.quarantine, 2, "c")
    epoch = take_epoch(table, "p", [])
    merging = Interrupted(epoch.store, epoch.plan, epoch.number, iter([lambda: compact(table, 1_000_000)]))
    assert Committer(merging, table, committer.quarantine).commit(as_wave(2, cell)) is True
    assert ids_of(table) == ["a", "b", "c"]
    assert len(newest(table).files()) == 2


def test_compact_skips_a_merge_whose_parts_were_replaced(tmp_path: Path):
    table, committer = encoded(tmp_path, ["a x", "b y"])

    def replace_part_then_merge(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part]]:
        made = [(merge, merge_parts(store, merge)) for merge in merges]
        files = [file for merge in merges for file in merge.files]
        (victim,) = [file.path for file in files if read_part(store, file)["doc_id"].to_pylist() == ["a"]]
        replaced = make_cell(store, committer.quarantine, 9, "a", impact=9).parts[0]
        newest(store).commit([(replaced, {"bucket": "0"})], [victim], app="i", version=0, epoch=1)
        yield from made

    done = compact(table, 1_000_000, run=replace_part_then_merge)
    assert (done.merges_skipped, done.parts_merged) == (1, 2)
    assert ids_of(table) == ["a", "b", "x", "y"]
    assert compact(table, 1_000_000).parts_merged == 2
    assert ids_of(table) == ["a", "b", "x", "y"]


def test_compact_rejects_a_damaged_part_and_commits_nothing(tmp_path: Path):
    table, _ = encoded(tmp_path, ["ab", "c"])
    file = newest(table).files()[0]
    path = Path(table.uri) / file.path
    whole = pq.ParquetFile(path).read()
    pq.write_table(whole.slice(1), path)
    with pytest.raises(ArtifactError, match=r"has \d rows, but the table's log says \d"):
        compact(table, 1_000_000)
    path.write_bytes(b"torn")
    with pytest.raises(ArtifactError, match="cannot be read"):
        compact(table, 1_000_000)
    assert newest(table).version == 2
    with pytest.raises(ArtifactError, match="is not a table"):
        compact(Store(str(tmp_path / "none")), 1)


def test_compact_commits_to_delta_without_data_change(tmp_path: Path):
    table, _ = encoded(tmp_path, ["a", "b"])
    compact(table, 1_000_000)
    lines = (Path(table.uri) / "_delta_log" / f"{3:020d}.json").read_text().splitlines()
    changes = [next(iter(action.values())).get("dataChange") for action in map(json.loads, lines)]
    assert changes.count(False) == 3
    assert True not in changes


def test_large_part_is_not_written_again_for_few_bytes():
    def planned(*sizes: int) -> list[list[int]]:
        columns = [[f"bucket=0/{place}" for place in range(len(sizes))], sizes, sizes, [None] * len(sizes)]
        files = pa.table([*columns, ["0"] * len(sizes)], schema=file_schema(["bucket"]))
        return sorted([file.size for file in merge.files] for merge in plan_merges(files, 1600))

    assert planned(100, 10) == planned(799) == []
    assert planned(99, 1) == [[1, 99]]
    assert planned(110, 20, 30) == [[20, 30]]
    assert planned(110, 20, 36) == [[20, 36, 110]]
    assert planned(799, 10, 10) == [[10, 10]]
    assert planned(700, 700, 700, 700) == [[700, 700], [700, 700]]
