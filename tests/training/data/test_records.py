import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import SourceError
from lsr_prod.training.data.training_rows import TrainingRow, cut_data, pin_files, read_rows


def data_of(path: Path, kind: str, **settings: Any) -> TrainingDataSettings:
    return TrainingDataSettings(paths=[str(path)], kind=kind, **settings)


def read(data: TrainingDataSettings, limit: int = 10**9, *, needs_negative: bool = False) -> list[tuple[int, Any]]:
    pieces = list(cut_data(pin_files(data, {}), data, limit, {}))
    return [row for piece in pieces for row in read_rows(piece, data, {}, needs_negative=needs_negative)]


def reasons(rows: list[tuple[int, Any]]) -> list[str | None]:
    return [row.reason if isinstance(row, BadRow) else None for _, row in rows]


def pair(number: int) -> dict[str, str]:
    return {"query": f"query {number}", "positive": f"positive {number}"}


def test_json_lines_are_read_in_slices_and_compressed(tmp_path: Path):
    lines = [json.dumps(pair(number)).encode() for number in range(100)]
    lines[3:3] = [b"{", b"[1]", b"\xff", b'{"query": "q"}', b""]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as file:
        file.write(b"\n".join(lines))
    whole = read(data_of(tmp_path / "a.jsonl", "pairs"))
    assert [row for _, row in whole if isinstance(row, TrainingRow)] == [
        TrainingRow(f"query {number}", (f"positive {number}",)) for number in range(100)
    ]
    assert reasons(whole)[3:7] == ["broken_json", "not_an_object", "invalid_utf8", "missing_field"]
    assert whole[6][1].raw == '{"query": "q"}'
    assert read(data_of(tmp_path / "a.jsonl", "pairs"), limit=500) == whole
    assert [row for _, row in read(data_of(tmp_path / "b.jsonl.gz", "pairs"))] == [row for _, row in whole]


ROWS = [
    {"query": "q0", "documents": ["p", "n"], "scores": [1.5, -2.0]},
    {"query": None, "documents": ["p", "n"], "scores": [1.0, 2.0]},
    {"query": "q2", "documents": None, "scores": [1.0, 2.0]},
    {"query": "q3", "documents": ["p", None], "scores": [1.0, 2.0]},
    {"query": "q4", "documents": ["p", "n"], "scores": [1.0, float("nan")]},
    {"query": "q5", "documents": ["p", "n", "m"], "scores": [1.0, 2.0]},
    {"query": "q6", "documents": [], "scores": []},
    {"query": "q7", "documents": ["p"], "scores": [1.0]},
    {"query": "q8", "documents": ["p", "n"], "scores": [2.0, 1.0]},
]
FOUND = [
    None, "missing_field", "missing_field", "missing_field", "nan_score", "wrong_score_count", "missing_field",
    "no_negative", None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("strings", "lists", "numbers"),
    [
        (pa.string(), pa.list_, pa.float64()),
        (pa.large_string(), pa.large_list, pa.float32()),
        (pa.string_view(), pa.list_, pa.float64()),
        (pa.dictionary(pa.int32(), pa.string()), pa.list_, pa.float64()),
        (pa.binary(), pa.list_view, pa.float32()),
    ],
)
@pytest.mark.parametrize("group", [1, 4, 100])
def test_typed_columns_of_every_width_are_read(tmp_path: Path, strings: Any, lists: Any, numbers: Any, group: int):
    columns = {
        "query": pa.array([row["query"] for row in ROWS], pa.string()).cast(strings),
        "documents": pa.array([row["documents"] for row in ROWS], lists(pa.string())),
        "scores": pa.array([row["scores"] for row in ROWS], lists(numbers)),
    }
    pq.write_table(pa.table(columns), tmp_path / "s.parquet", row_group_size=group)
    for limit in (1, 10**9):
        rows = read(data_of(tmp_path / "s.parquet", "scores"), limit, needs_negative=True)
        assert [position for position, _ in rows] == list(range(9))
        assert reasons(rows) == FOUND
        assert rows[0][1] == TrainingRow("q0", ("p", "n"), (1.5, -2.0))
        assert rows[8][1] == TrainingRow("q8", ("p", "n"), (2.0, 1.0))


def test_integers_half_floats_and_fixed_size_lists_are_read(tmp_path: Path):
    for name, kind in (("i", pa.int64()), ("h", pa.float16()), ("u", pa.uint8())):
        columns = {
            "query": ["q"],
            "documents": pa.array([["p", "n"]], pa.list_(pa.string(), 2)),
            "scores": pa.array([[2, 1]], pa.list_(kind, 2)),
        }
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    assert [row for _, row in read(data_of(tmp_path, "scores"))] == [TrainingRow("q", ("p", "n"), (2.0, 1.0))] * 3


def test_lists_of_null_type_are_empty(tmp_path: Path):
    table = pa.table({"query": ["q"], "positive": ["p"], "negatives": pa.array([[]], pa.list_(pa.null()))})
    pq.write_table(table, tmp_path / "n.parquet")
    assert read(data_of(tmp_path / "n.parquet", "negatives")) == [(0, TrainingRow("q", ("p",)))]


def test_delta_table_is_read_with_partition_values(tmp_path: Path):
    rows = [{"query": f"q{number}", "positive": text} for number, text in enumerate(["a", "b", "a", " ", "b"])]
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows), partition_by=["positive"])
    found = [row for _, row in read(data_of(tmp_path / "t", "pairs"))]
    good = {(row.query, row.documents[0]) for row in found if isinstance(row, TrainingRow)}
    assert good == {("q0", "a"), ("q1", "b"), ("q2", "a"), ("q4", "b")}
    assert [row.reason for row in found if isinstance(row, BadRow)] == ["empty_text"]


def test_damaged_file_and_changed_file_raise(tmp_path: Path):
    path = tmp_path / "p.parquet"
    texts = [bytes([number]).hex() * 400 for number in range(200)]
    options = {"row_group_size": 50, "write_page_checksum": True, "use_dictionary": False}
    pq.write_table(pa.table({"query": texts, "positive": texts}), path, **options)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(2).column(0)
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    data = data_of(path, "pairs")
    with pytest.raises(SourceError, match=r"p\.parquet is damaged: .* 100 rows before it were read.*repair the file"):
        read(data)
    (piece,) = cut_data(pin_files(data, {}), data, 10**9, {})
    path.write_bytes(content + b"x")
    with pytest.raises(SourceError, match="has changed since it was pinned"):
        list(read_rows(piece, data, {}, needs_negative=False))
