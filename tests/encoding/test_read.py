import gzip
import io
import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.encoding import read
from lsr_prod.encoding.plan import Slice, make_plan
from lsr_prod.encoding.read import Reader, lines
from lsr_prod.encoding.sources import resolve_source
from lsr_prod.errors import SourceError

ENCODE = EncodeSettings(bundle="b", table="t", buckets=4)


def read_all(source: SourceSettings, encode: EncodeSettings = ENCODE) -> list[dict]:
    files = resolve_source(source, {})
    plan = make_plan(files, source, encode, bundle_digest="b", options={})
    reader = Reader(files, source, encode.buckets, {})
    pieces = list(plan.slices())
    return [row for piece in pieces for table in reader.read(piece) for row in table.to_pylist()]


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x")), max_size=12),
    ending=st.sampled_from([b"", b"\n"]),
    cuts=st.lists(st.integers(0, 120), max_size=5),
    limit=st.integers(1, 15),
    block=st.integers(1, 7),
)
def test_byte_ranges_that_tile_a_file_give_every_line_once(rows, ending, cuts, limit, block):
    data = b"\n".join(rows) + ending
    expected, offset = [], 0
    for line in data.split(b"\n"):
        if line.strip():
            expected.append((offset, line[:limit], len(line) <= limit))
        offset += len(line) + 1
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    kept, read._BLOCK = read._BLOCK, block
    try:
        found = [
            row for start, stop in itertools.pairwise(bounds) for row in lines(io.BytesIO(data), start, stop, limit)
        ]
    finally:
        read._BLOCK = kept
    assert found == expected


def test_every_kind_of_bad_line_has_its_reason(tmp_path: Path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(
        b"\n".join(
            [
                b'{"_id": "good", "title": "T", "text": "x"}',
                b'{"_id": "a", "text": ',
                b'["_id"]',
                b'{"_id": "b", "text": "\xff\xfe"}',
                b'{"text": "no id"}',
                b'{"_id": "", "text": "empty id"}',
                b'{"_id": 7, "text": "number"}',
                b'{"_id": "c", "text": " \\n "}',
                b'{"_id": "d", "text": "\\ud800"}',
                json.dumps({"_id": "e", "text": "y" * 101}).encode(),
                json.dumps({"_id": "f", "text": "y" * 3_000_000}).encode(),
                b"[" * 100_000,
                b'{"_id": "null", "title": null, "text": "last"}',
            ]
        )
    )
    source = SourceSettings(paths=[str(corpus)], max_text_bytes=100)
    rows = read_all(source)
    assert [row["reason"] for row in rows] == [
        None, "broken_json", "not_an_object", "invalid_utf8", "missing_id", "missing_id", "wrong_type", "empty_text",
        "invalid_utf8", "text_too_long", "row_too_long", "broken_json", None,
    ]  # fmt: skip
    assert rows[0]["text"] == "T x"
    assert rows[0]["stored.title"] == "T"
    assert rows[-1]["text"] == "last"
    assert rows[-1]["stored.title"] is None
    assert rows[3]["raw"] == '{"_id": "b", "text": "��"}'
    assert max(len(row["raw"] or "") for row in rows) == 4096


def test_formats_give_the_same_documents_whatever_the_slices(tmp_path: Path):
    documents = [{"_id": f"d{i}", "title": f"t{i}", "text": "word " * (i % 50 + 1)} for i in range(3000)]
    text = "".join(json.dumps(document) + "\n" for document in documents).encode()
    (tmp_path / "c.jsonl").write_bytes(text)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text))
    pq.write_table(pa.Table.from_pylist(documents), tmp_path / "c.parquet", row_group_size=700)
    expected = [(document["_id"], f"{document['title']} {document['text']}") for document in documents]
    for name in ("c.jsonl", "c.jsonl.gz", "c.parquet"):
        rows = read_all(SourceSettings(paths=[str(tmp_path / name)]))
        assert [(row["doc_id"], row["text"]) for row in rows] == expected, name
        assert [row["position"] for row in rows] == sorted({row["position"] for row in rows})


def test_parquet_strings_that_are_no_utf8_are_quarantined(tmp_path: Path):
    text = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"_id": ["a", "b"], "text": text}), tmp_path / "c.parquet")
    rows = read_all(SourceSettings(paths=[str(tmp_path / "c.parquet")]))
    assert [row["reason"] for row in rows] == [None, "invalid_utf8"]
    assert rows[1]["doc_id"] == "b"


def test_a_file_that_changed_after_the_plan_is_refused(tmp_path: Path):
    (tmp_path / "c.jsonl").write_text('{"_id": "a", "text": "x"}\n')
    source = SourceSettings(paths=[str(tmp_path / "c.jsonl")])
    files = resolve_source(source, {})
    (tmp_path / "c.jsonl").write_text('{"_id": "a", "text": "xy"}\n')
    with pytest.raises(SourceError, match="not as the plan pinned it"):
        list(Reader(files, source, 4, {}).read(Slice(files[0], 0, 0, files[0].size, 0, files[0].size)))


def test_a_torn_gzip_file_is_an_error_and_not_a_short_corpus(tmp_path: Path):
    data = gzip.compress(b'{"_id": "a", "text": "x"}\n' * 1000)
    (tmp_path / "c.jsonl.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match="cannot be read to its end"):
        read_all(SourceSettings(paths=[str(tmp_path / "c.jsonl.gz")]))
