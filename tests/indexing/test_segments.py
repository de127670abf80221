"""Tantivy indexes with equal bytes in every build."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tantivy

from lsr_prod.formats.shard import ORDINAL_FIELD, TANTIVY_FOLDER
from lsr_prod.indexing.boolean import BooleanWriter, segment_documents
from lsr_prod.indexing.impacts.vectors import Vectors
from lsr_prod.indexing.segments import surplus

N = 3250


def write(shard: Path, size: int) -> dict[str, bytes]:
    """Write the Tantivy index of N documents in segments of ``size`` documents; return its files."""
    shard.mkdir()
    vectors = Vectors(np.arange(0, 2 * N + 1, 2), np.arange(2 * N, dtype=np.uint16) % 9, np.full(2 * N, 9, np.uint8))
    texts = pa.table({"text": [f"common w{i % 5} text{i}" for i in range(N)]})
    with BooleanWriter(shard, ["text"], {"kind": "string"}, segment_documents=size) as writer:
        for start in (0, 1800):
            part = texts.slice(start, 1800)
            kinds = pa.array([f"k{i % 3}" for i in range(start, start + len(part))])
            writer.add(vectors.take(np.arange(start, start + len(part))), part, [kinds])
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
        ("attribute.kind:k1", range(1, N, 3)),
        ("text:w3", range(3, N, 5)),
    ):
        found = searcher.search(tantivy.Query.const_score_query(index.parse_query(query, ["text"]), 1.0), limit=N)
        assert searcher.fast_field_values(ORDINAL_FIELD, [one for _, one in found.hits]) == list(expected)


def test_neighbors_that_are_merged_differ_in_size_however_often_they_were_merged():
    sizes = [100 + surplus(segment) for segment in range(8**4)]
    assert (min(sizes), max(sizes)) == (128, 156)
    while len(sizes) > 1:
        groups = [sizes[at : at + 8] for at in range(0, len(sizes), 8)]
        assert all(group == sorted(set(group), reverse=True) for group in groups)
        sizes = [sum(group) for group in groups]


def test_segment_documents_follow_the_size_of_documents():
    assert segment_documents(0, 0, 0) == 64
    short, long = segment_documents(1000, 60_000, 360_000), segment_documents(1000, 600_000, 36_000_000)
    assert 50_000 < short < 70_000
    assert 1_000 < long < 1_500
    assert segment_documents(10, 0, 0) == 671_088
