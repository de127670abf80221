"""Tantivy indexes with equal bytes in every build."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
import tantivy

from lsr_prod.indexing.boolean import BooleanWriter, segment_documents, surplus
from lsr_prod.storage.formats.index_format import Analyzer
from lsr_prod.storage.formats.shard_format import ORDINAL_FIELD, TANTIVY_FOLDER

N = 3250


def write(shard: Path, size: int, analyzer: Analyzer = "english") -> dict[str, bytes]:
    """Write the Tantivy index of N documents in segments of ``size`` documents; return its files."""
    shard.mkdir()
    texts = [f"common w{i % 5} text{i} 東京都" for i in range(N)]
    with BooleanWriter(shard, analyzer, segment_documents=size) as writer:
        for start in (0, 1800):
            writer.add(texts[start : start + 1800])
    folder = shard / TANTIVY_FOLDER
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("size", "segments"),
    [(N, [N]), (1200, [1256, 1255, 739]), (300, [2820, 355, 75])],
)
def test_builds_of_equal_documents_have_equal_files_whatever_is_merged(tmp_path, size, segments):
    first, second = write(tmp_path / "a", size), write(tmp_path / "b", size)
    assert first == second
    assert [one["max_doc"] for one in json.loads(first["meta.json"])["segments"]] == segments
    assert sorted(json.loads(first[".managed.json"])) == sorted(set(first) - {".managed.json"})


def test_documents_keep_their_order_and_every_one_is_found(tmp_path):
    write(tmp_path / "a", 300)  # eight segments are merged
    index = tantivy.Index.open(str(tmp_path / "a" / TANTIVY_FOLDER))
    searcher = index.searcher()
    for query, expected in (
        ("text:common", range(N)),
        ("text:w3", range(3, N, 5)),
    ):
        found = searcher.search(tantivy.Query.const_score_query(index.parse_query(query, ["text"]), 1.0), limit=N)
        assert searcher.fast_field_values(ORDINAL_FIELD, [one for _, one in found.hits]) == list(expected)


def test_words_of_another_analyzer_are_found_after_merges(tmp_path):
    write(tmp_path / "a", 300, "bigrams")
    index = tantivy.Index.open(str(tmp_path / "a" / TANTIVY_FOLDER))
    query = tantivy.Query.term_query(index.schema, "text", "京都", index_option="freq")
    assert index.searcher().search(query, count=True).count == N


def test_neighbors_that_are_merged_differ_in_size_however_often_they_were_merged():
    sizes = [100 + surplus(segment) for segment in range(8**4)]
    assert (min(sizes), max(sizes)) == (128, 156)
    while len(sizes) > 1:
        groups = [sizes[at : at + 8] for at in range(0, len(sizes), 8)]
        assert all(group == sorted(set(group), reverse=True) for group in groups)
        sizes = [sum(group) for group in groups]


def test_segment_documents_follow_the_size_of_documents():
    assert segment_documents(0, 0) == 64
    short, long = segment_documents(1000, 360_000), segment_documents(1000, 36_000_000)
    assert 90_000 < short < 110_000
    assert 1_000 < long < 1_500
    assert segment_documents(10, 0) == 671_088


@pytest.mark.parametrize(("letters", "most"), [(2_000_000, 64), (0, 1)])
def test_segments_follow_the_first_texts(tmp_path, letters, most):
    with BooleanWriter(tmp_path) as writer:
        writer.add(["x" * letters] * 3)
        for _ in range(5):
            writer.add(["short"] * 40)
    found = json.loads((tmp_path / TANTIVY_FOLDER / "meta.json").read_bytes())["segments"]
    assert sum(one["max_doc"] for one in found) == 203
    assert (len(found) > 1) == (most == 64)


def test_index_without_documents_can_be_opened(tmp_path):
    with BooleanWriter(tmp_path):
        pass
    assert tantivy.Index.open(str(tmp_path / TANTIVY_FOLDER)).searcher().num_docs == 0


@pytest.mark.parametrize("texts", [[], ["a word"] * 3])
@pytest.mark.parametrize("fails", [False, True])
def test_lock_that_a_thread_of_tantivy_creates_late_leaves_no_folder(tmp_path, monkeypatch, texts, fails):
    rmdir = os.rmdir

    def create_lock(path: str, **descriptor: int) -> None:
        for number in (1, 2):  # by its path, as Tantivy does when it loads an index for readers
            with suppress(FileNotFoundError):
                (tmp_path / TANTIVY_FOLDER / f"run{number}" / ".tantivy-meta.lock").touch()
        rmdir(path, **descriptor)

    monkeypatch.setattr(os, "rmdir", create_lock)
    with suppress(KeyError), BooleanWriter(tmp_path, segment_documents=1) as writer:
        writer.add(texts)
        if fails:
            raise KeyError
    names = {path.name for path in tmp_path.rglob("*") if path.is_dir()}
    assert names == (set() if fails else {TANTIVY_FOLDER})
