"""Chains of increments against one full encode of the last corpus, for every rule about duplicates."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.cells.known_rows import Rule, SourceOrder, _loses, choose_rows
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from tests.encoding.made_tables import read
from tests.encoding.poison_encoder import PoisonEncoder
from tests.faults.protocol import Job, run_attempt

PADDING = "x" * 700_000  # two rows are more than a wave and a cell of 1 MB


def write(folder: Path, corpus: dict[str, str], *, large: bool = False) -> Path:
    """Write a file per entry: its content is a row per character; the text says where the row comes from."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        if old.stem not in corpus:
            old.unlink()
    for name, ids in corpus.items():
        padding = {"pad": PADDING} if large else {}
        rows = [{"_id": letter, "text": f"{name} {ids} {i}", **padding} for i, letter in enumerate(ids)]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        if not (folder / f"{name}.jsonl").exists() or (folder / f"{name}.jsonl").read_text() != content:
            (folder / f"{name}.jsonl").write_text(content)
    return folder


def encode(folder: Path, table: Path, rule: Rule, buckets: int = 2) -> None:
    job = Job((str(folder),), str(table), {}, buckets, rule)
    run_attempt(job, lambda _phase: nullcontext(), PoisonEncoder())


def documents(table: Path) -> dict[str, tuple[Any, ...]]:
    """Return the documents, each once, without the order of their parts."""
    rows = read(Store(str(table)))
    found = {row["doc_id"]: (row["content_hash"], row["source_file"], tuple(row["terms"])) for row in rows}
    assert len(found) == len(rows)
    return found


def duplicates(table: Path) -> set[tuple[str, int]]:
    rows = read(Store(f"{table}_quarantine"))
    return {(row["doc_id"], row["source_file"]) for row in rows if row["reason"] == "duplicate_id"}


CORPORA = st.lists(
    st.dictionaries(st.sampled_from(["01", "02", "03", "04"]), st.text("abcd", min_size=1, max_size=3), max_size=4),
    min_size=2,
    max_size=4,
)


@pytest.mark.long
@settings(max_examples=40)
@given(corpora=CORPORA, rule=st.sampled_from(["first", "last"]))
def test_chain_of_increments_equals_full_encode(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[dict[str, str]], rule: Rule
) -> None:
    corpora = [corpus for corpus in corpora if corpus]
    folder = tmp_path_factory.mktemp("chain")
    source = folder / "corpus"
    for corpus in corpora:
        write(source, corpus)
        encode(source, folder / "table", rule)
    if corpora:
        encode(source, folder / "full", rule)
        assert documents(folder / "table") == documents(folder / "full")
        assert duplicates(folder / "full") <= duplicates(folder / "table")


def test_duplicate_of_a_row_that_the_model_failed_on_returns(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus", {"01 RAISE": "a", "02": "ab"})
    encode(source, tmp_path / "table", "first")
    assert sorted(documents(tmp_path / "table")) == ["b"]
    write(source, {"02": "ab"})
    encode(source, tmp_path / "table", "first")
    assert sorted(documents(tmp_path / "table")) == ["a", "b"]


@pytest.mark.parametrize("rule", ["first", "last"])
def test_new_order_of_folders_changes_the_document_of_an_id(tmp_path: Path, rule: Rule) -> None:
    one, two = write(tmp_path / "1", {"a": "ab"}), write(tmp_path / "2", {"b": "bc"})
    for table, folders in (("table", (one, two)), ("table", (two, one)), ("full", (two, one))):
        job = Job(tuple(map(str, folders)), str(tmp_path / table), {}, 2, on_duplicate=rule)
        run_attempt(job, lambda _phase: nullcontext(), PoisonEncoder())
    assert documents(tmp_path / "table") == documents(tmp_path / "full")


@pytest.mark.parametrize(("rule", "winner"), [("first", "01"), ("last", "02")])
def test_new_file_wins_by_its_place_in_the_listing(tmp_path: Path, rule: Rule, winner: str) -> None:
    for first, second in (("01", "02"), ("02", "01")):
        folder = tmp_path / f"{first}-{second}"
        write(folder / "corpus", {first: "ab"})
        encode(folder / "corpus", folder / "table", rule)
        write(folder / "corpus", {first: "ab", second: "bc"})
        encode(folder / "corpus", folder / "table", rule)
        encode(folder / "corpus", folder / "full", rule)
        assert documents(folder / "table") == documents(folder / "full")
        assert duplicates(folder / "table") == duplicates(folder / "full")
        losers = read(Store(f"{folder}/table_quarantine"))
        assert {Path(row["source"]).stem for row in losers} == {"01", "02"} - {winner}


@pytest.mark.long
@pytest.mark.parametrize("rule", ["first", "last"])
def test_large_increment_of_several_cells_per_bucket_equals_full_encode(tmp_path: Path, rule: Rule) -> None:
    source = tmp_path / "corpus"
    write(source, {"02": "abcdef", "05": "gha"}, large=True)
    encode(source, tmp_path / "table", rule, buckets=1)
    write(source, {"02": "abcdef", "05": "gha", "01": "adg", "09": "befh"}, large=True)
    encode(source, tmp_path / "table", rule, buckets=1)
    encode(source, tmp_path / "full", rule, buckets=1)
    assert documents(tmp_path / "table") == documents(tmp_path / "full")
    assert duplicates(tmp_path / "table") == duplicates(tmp_path / "full")


def test_error_names_id_and_place_and_commits_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus", {"01": "ab", "02": "cb"})
    with pytest.raises(SourceError, match=r"have the id of another row, the first 'b' at \d+ of .*02\.jsonl"):
        encode(source, tmp_path / "table", "error")
    write(source, {"01": "ab"})
    encode(source, tmp_path / "again", "error")
    write(source, {"01": "ab", "02": "bd"})
    with pytest.raises(SourceError, match="the first 'b'"):
        encode(source, tmp_path / "again", "error")
    assert sorted(documents(tmp_path / "again")) == ["a", "b"]


def test_rows_are_chosen_by_file_then_position() -> None:
    records = [("a", 1, 5), ("a", 0, 9), ("b", 0, 1), ("a", 0, 2)]
    rows = pa.Table.from_pylist(
        [{"doc_id": name, "file": file, "position": at} for name, file, at in records], schema=row_schema(())
    )
    rules: list[tuple[Rule, int]] = [("first", 2), ("last", 5), ("error", 2)]
    for rule, position in rules:
        one, others = choose_rows(rows, rule)
        assert list(zip(one["doc_id"].to_pylist(), one["position"].to_pylist(), strict=True)) == [
            ("a", position),
            ("b", 1),
        ]
        assert others.num_rows == 2


def test_file_listed_twice_counts_where_its_rows_count() -> None:
    listed, committed = pa.array([7, 8, 7]), pa.array([7, 7])
    new = pa.array([1, 3], pa.int32())
    assert SourceOrder("first", listed).displaces(new, committed).to_pylist() == [False, False]
    assert SourceOrder("last", listed).displaces(new, committed).to_pylist() == [False, True]


def test_files_are_not_sorted_where_no_new_row_meets_a_committed_one():
    order: Any = object()  # has no order
    nothing, keys = pa.nulls(3, pa.int64()), pa.array([1, 2, 3])
    assert (
        _loses(order, pa.array([], pa.int64()), nothing, keys, pa.array([False, True, False])).to_pylist()
        == [False] * 3
    )
