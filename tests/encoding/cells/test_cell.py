"""Cells compared with a plain Python dictionary of the expected documents."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.cells.cell import encode_batches, prepare_cell, write_cell
from lsr_prod.encoding.cells.lookup import ROW_COUNT, WaveTask, look_up_cells
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.results import CellOutput, CellResult, WaveResult
from lsr_prod.encoding.tables import Part, read_all_rows
from lsr_prod.encoding.tables.sparse_table import committed_files
from lsr_prod.errors import CommitError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import bucket_of, cell_of, content_hash, content_keys
from tests.encoding.made_tables import PROPERTIES, make_tables, newest, read
from tests.encoding.poison_encoder import PoisonEncoder, term_of

encode = partial(encode_batches, PoisonEncoder())


def task(
    folder: Path, committed: Sequence[Part] = (), removed: frozenset[int] = frozenset(), cells: int = 2
) -> WaveTask:
    table, quarantine = make_tables(folder)
    if committed:
        adds = [(part, {"bucket": "0"}) for part in committed]
        newest(table).commit(adds, [], app="before", version=0, epoch=1)
    return WaveTask("p", 0, cells, table, quarantine, PROPERTIES, committed_files(newest(table)), removed)


def rows(*records: tuple[str, str, int], bad: int = 0, cell: int = 0) -> pa.Table:
    """Rows of (doc_id, text, source_key), some bad rows, and a row count."""
    good: list[dict[str, Any]] = [
        {
            "cell": cell,
            "file": key,
            "source_key": key,
            "source": f"{key}.jsonl",
            "position": i,
            "doc_id": name,
            "text": t,
        }
        for i, (name, t, key) in enumerate(records)
    ]
    broken = {"cell": cell, "file": 9, "source_key": 9, "source": "9.jsonl", "reason": "broken_json", "detail": "no"}
    good += [broken | {"position": i, "raw": "{"} for i in range(bad)]
    good.append({"cell": cell, "reason": ROW_COUNT, "position": len(good)})
    return pa.Table.from_pylist(good, schema=row_schema(()))


def documents(store: Store, result: CellResult) -> dict[str, dict[str, Any]]:
    parts = [pq.read_table(f"{store.uri}/{part.path}", partitioning=None).to_pylist() for part in result.parts]
    return {row["doc_id"]: row for part in parts for row in part}


def encode_only(wave: WaveTask, rows: pa.Table) -> CellResult:
    """Encode the rows of one cell."""
    (found,) = look_up_cells(wave, rows)
    cell = prepare_cell(wave, found)
    return write_cell(wave, cell, *encode(cell.texts()))


def balance(result: CellResult) -> int:
    quarantined = result.quarantine.rows if result.quarantine else 0
    return result.counts.rows_in - sum(part.rows for part in result.parts) - quarantined


def test_cell_encodes_documents_and_quarantines_bad_rows(tmp_path: Path):
    wave = task(tmp_path)
    result = encode_only(wave, rows(("b", "two", 1), ("a", "one", 1), ("c", "RAISE", 1), bad=2))
    found = documents(wave.table, result)
    assert list(found) == ["a", "b"]
    assert found["a"]["terms"] == [term_of("one")]
    assert found["a"] | {"terms": 0, "impacts": 0} == {
        "doc_id": "a",
        "terms": 0,
        "impacts": 0,
        "content_hash": content_hash("one"),
        "content_key": content_keys([content_hash("one")])[0],
        "source_file": 1,
    }
    assert result.counts.quarantined_by_reason == {"broken_json": 2, "encode_failed": 1}
    assert (result.counts.rows_in, result.encoded, balance(result)) == (5, 2, 0)


def test_first_row_of_an_id_in_source_order_is_the_document(tmp_path: Path):
    wave = task(tmp_path)
    result = encode_only(wave, rows(("a", "late", 5), ("a", "first", 2), ("a", "second", 2)))
    assert documents(wave.table, result)["a"]["content_hash"] == content_hash("first")
    assert result.counts.quarantined_by_reason == {"duplicate_id": 2}


def test_committed_ids_are_duplicates(tmp_path: Path):
    first = task(tmp_path)
    before = encode_only(first, rows(("a", "one", 1), ("b", "two", 1)))
    second = task(tmp_path, before.parts)
    result = encode_only(second, rows(("a", "other", 2), ("c", "three", 2)))
    assert list(documents(second.table, result)) == ["c"]
    assert (result.counts.quarantined_by_reason, result.deletions) == ({"duplicate_id": 1}, ())


def test_text_that_did_not_change_keeps_its_vector(tmp_path: Path):
    first = task(tmp_path)
    before = encode_only(first, rows(("a", "one", 1), ("b", "two", 1)))
    second = task(tmp_path, before.parts, frozenset({1}))
    result = encode_only(second, rows(("a", "one", 2), ("b", "other", 2)))
    found = documents(second.table, result)
    assert {name: (row["terms"], row["source_file"]) for name, row in found.items()} == {
        "a": ([term_of("one")], 2),
        "b": ([term_of("other")], 2),
    }
    assert (result.encoded, result.counts.superseded, result.counts.deleted) == (1, 2, 0)


def test_outputs_that_are_not_committed_yet_are_known(tmp_path: Path):
    wave = task(tmp_path)
    before = encode_only(wave, rows(("a", "one", 1)))
    follows = {0: (CellOutput(0, tuple(part.path for part in before.parts), None),)}
    (found,) = look_up_cells(wave, rows(("a", "other", 2), ("b", "two", 2)), follows)
    assert prepare_cell(wave, found).duplicates["doc_id"].to_pylist() == ["a"]


def test_part_that_vanished_before_its_commit_asks_for_another_run(tmp_path: Path):
    wave = task(tmp_path)
    before = encode_only(wave, rows(("a", "one", 1)))
    (part,) = before.parts
    (Path(wave.table.uri) / part.path).unlink()
    with pytest.raises(CommitError, match=r"was deleted or is damaged \(FileNotFoundError\); run the job again"):
        look_up_cells(
            wave, rows(("a", "other", 2)), {0: (CellOutput(0, tuple(part.path for part in before.parts), None),)}
        )


def test_clipped_weights_and_unread_bytes_are_counted(tmp_path: Path):
    wave = task(tmp_path)
    table = rows(("a", "one", 1), ("b", "two", 1), bad=2)
    unread = [None, None, 5, 7, None]
    at = table.schema.get_field_index("unread_bytes")
    table = table.set_column(at, table.schema.field(at), pa.array(unread, table.schema.field(at).type))
    (found,) = look_up_cells(wave, table)
    cell = prepare_cell(wave, found)
    vectors, failures = encode(cell.texts())
    result = write_cell(wave, cell, replace(vectors, weights=np.array([9.0, 0.5], np.float32)), failures)
    assert (result.counts.unread_bytes, result.counts.clipped, result.counts.weights) == (12, 1, 2)
    assert encode_only(wave, rows(("c", "three", 1))).counts.unread_bytes == 0


def test_cell_without_rows_writes_nothing(tmp_path: Path):
    result = encode_only(task(tmp_path), rows(cell=1))
    assert (result.counts.rows_in, result.parts, result.quarantine, result.bucket) == (0, (), None, 1)


@pytest.mark.slow
def test_cell_with_more_than_two_gigabytes_of_text_is_encoded(tmp_path: Path):
    """Needs about 14 GB of memory."""
    count, properties = 22, replace(PROPERTIES, stored_fields=("text",))
    table, quarantine = make_tables(tmp_path)
    wave = WaveTask("p", 0, 2, table, quarantine, properties, committed_files(newest(table)))
    schema = row_schema(properties.stored_fields)
    records = [{"cell": 0, "file": 0, "source_key": 1, "position": i, "doc_id": f"{i:02}"} for i in range(count)]
    block = pa.Table.from_pylist([record | {"text": "a text"} for record in records], schema=schema)
    stored = schema.field("stored.text")
    big = pa.chunked_array([pa.array(["x" * 100_000_000], stored.type)] * count)
    block = block.set_column(schema.get_field_index(stored.name), stored, big)
    counts = pa.Table.from_pylist([{"cell": 0, "reason": ROW_COUNT, "position": count}], schema=schema)
    result = encode_only(wave, pa.concat_tables([block, counts]))
    assert (result.counts.rows_in, result.encoded, balance(result)) == (count, count, 0)
    found = read_all_rows(table, result.parts[0].path, pa.schema([("text", pa.large_string())]))
    assert pc.sum(pc.binary_length(found["text"])).as_py() == count * 100_000_000


corpora = st.dictionaries(
    st.sampled_from([f"{i}" for i in range(30) if bucket_of(f"{i}", PROPERTIES.buckets) == 0][:8]),
    st.tuples(st.sampled_from(["one", "two", "three"]), st.integers(1, 3)),
    max_size=8,
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(before=corpora, after=corpora, splits=st.integers(1, 3))
def test_cells_of_a_bucket_give_together_the_documents_of_the_new_corpus(
    tmp_path_factory: Any, before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]], splits: int
):
    """Files 1 and 2 are rewritten as 11 and 12; file 3 is unchanged."""
    folder = tmp_path_factory.mktemp("cell")
    stays = {name: row for name, row in before.items() if row[1] == 3}
    changed = {name: (text, key % 2 + 11) for name, (text, key) in after.items() if name not in stays}
    first = task(folder)
    halves = [dict(list(before.items())[:4]), dict(list(before.items())[4:])]
    old = [
        part for half in halves for part in encode_only(first, rows(*((n, t, k) for n, (t, k) in half.items()))).parts
    ]
    cells = splits * PROPERTIES.buckets
    wave = task(folder, old, frozenset({1, 2}), cells)
    results = []
    for cell in range(0, cells, PROPERTIES.buckets):
        mine = ((n, t, k) for n, (t, k) in changed.items() if cell_of(n, cells) == cell)
        results.append(encode_only(wave, rows(*mine, cell=cell)))
        assert balance(results[-1]) == 0
        assert len(results[-1].parts) <= 1
    result = WaveResult(0, tuple(results))
    result.check()
    Committer(take_epoch(wave.table, "p", []), wave.table, wave.quarantine).commit(result)
    found = read(wave.table)
    assert sorted((row["doc_id"], row["content_hash"], row["source_file"], row["terms"]) for row in found) == sorted(
        (name, content_hash(text), key, [term_of(text)]) for name, (text, key) in (stays | changed).items()
    )
    left = [name for name, row in before.items() if row[1] != 3]
    assert result.counts.deleted == len([name for name in left if name not in changed])
    same = [name for name in left if name in changed and changed[name][0] == before[name][0]]
    assert sum(cell.encoded for cell in results) == len(changed) - len(same)
