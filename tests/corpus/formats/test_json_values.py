import io
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.formats.json_values import json_records
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import SourceError
from tests.corpus.test_damage import arrow_codec

COLUMNS = frozenset({"_id", "text"})


class Pieces(io.BytesIO):
    """File that returns a few bytes at a time."""

    def __init__(self, data: bytes, random: Random) -> None:
        super().__init__(data)
        self._random = random

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(min(size or 1, self._random.randrange(1, 9)))


def values_of(data: bytes, limit: int = 100_000, random: Random | None = None) -> list[Any]:
    file = io.BytesIO(data) if random is None else Pieces(data, random)
    rows = json_records(file, COLUMNS, limit)
    return [row.reason if isinstance(row, BadRow) else row.values for _, row in rows]


TEXT = st.one_of(st.text(max_size=8), st.text('"\\{}[],:\n\x1e\ufeff', max_size=12))
VALUE = st.recursive(
    st.one_of(TEXT, st.integers(), st.booleans(), st.none()),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(TEXT, inside, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(TEXT, VALUE, max_size=3).map(lambda some: {"_id": "a"} | some), max_size=6)


@settings(deadline=None, max_examples=300)
@given(
    rows=OBJECTS,
    indent=st.sampled_from([None, 0, 1, 4]),
    plain=st.booleans(),
    form=st.sampled_from(["array", "joined arrays", "values", "adjacent", "lines", "sequence"]),
    seed=st.integers(0, 2**20),
    mark=st.booleans(),
)
def test_every_form_of_json_is_read_back(
    rows: list[dict], indent: int | None, plain: bool, form: str, seed: int, mark: bool
):
    if form == "array":
        text = json.dumps(rows, indent=indent, ensure_ascii=plain)
    elif form == "joined arrays":
        text = "\n\ufeff".join(json.dumps(part, indent=indent, ensure_ascii=plain) for part in (rows[:2], rows[2:]))
    else:
        between = {"values": "\n", "adjacent": "", "lines": "\n", "sequence": "\x1e"}[form]
        indent = None if form == "lines" or rows == [] or len(rows) > 3 else indent
        text = between.join(["", *(json.dumps(row, indent=indent, ensure_ascii=plain) for row in rows)])
    data = b"\xef\xbb\xbf" * mark + text.encode("utf-8", "surrogatepass")
    assert values_of(data, random=Random(seed)) == rows


def test_positions_are_the_bytes_of_the_values():
    data = b'\xef\xbb\xbf[ {"_id": "a"},\n{"_id": "\xc3\xa9 [", "x": [{}]}, 3]'
    assert [at for at, _ in json_records(io.BytesIO(data), COLUMNS, 1000)] == [5, 19, data.index(b"3")]


def test_value_that_is_no_object_or_does_not_parse_is_one_bad_row():
    data = b'[{"_id": "a"}, 7, null, "x, {", ["y"], {"_id": nope}, {"_id": ["b"}, {"_id": "c", "x": "' + b"y" * 90
    data += b'"}, {"_id": "d", "x": [' + b'"{",' * 3_000_00 + b'""]},\n{"_id": "e"}]'
    assert values_of(data, limit=60) == [
        {"_id": "a"}, "not_an_object", "not_an_object", "not_an_object", "not_an_object", "broken_json", "broken_json",
        "row_too_long", "row_too_long", {"_id": "e"},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "abcdefghijklm", '[{"', '\\" \\', "}" * 20])
def test_string_that_crosses_two_blocks_ends_where_it_is_closed(text: str):
    string, row = json.dumps(text), {"_id": "a", "text": "x"}
    for seed in range(20):
        for joined in (
            f"[{string}, {json.dumps(row)}, {string},{string}]",
            f"{string}{json.dumps(row)}{string} {string}",
        ):
            found = values_of(f"\n{joined}".encode(), random=Random(seed))  # the first line is read at once
            assert found == ["not_an_object", row, "not_an_object", "not_an_object"]


@pytest.mark.parametrize(
    ("data", "good", "unread"),
    [
        (b'[{"_id": "a"}, {"_id": "b"}', 1 + 1, 0),
        (b'[{"_id": "a"}, {"_id": "b"', 1, len(b'{"_id": "b"')),
        (b'[{"_id": "a"}, {"_id": "b}, {"_id": "c"}]', 1, len(b'{"_id": "b}, {"_id": "c"}]')),
        (b'[{"_id": "a"}, {"_id": {"b": "c"}, {"_id": "d"}]', 1, len(b'{"_id": {"b": "c"}, {"_id": "d"}]')),
        (b'[{"_id": "a"}]}, {"_id": "b"}', 1, len(b'}, {"_id": "b"}')),
        (b'[{"_id": "a"}, words, {"_id": "b"}]', 1, len(b'words, {"_id": "b"}]')),
        (b'[{"_id": "a"}, "b', 1, 2),
        (b"\0" * 100, 0, 100),
    ],
)
def test_what_cannot_be_read_is_counted(data: bytes, good: int, unread: int):
    for random in (None, Random(1), Random(2)):
        file = io.BytesIO(data) if random is None else Pieces(data, random)
        *rows, (at, damage) = json_records(file, COLUMNS, 1000)
        assert len(rows) == good
        assert isinstance(damage, BadRow)
        assert (damage.reason, damage.unread, at) == ("damaged_file", unread, len(data) - unread)
        assert f"after {good} rows" in damage.detail


def test_json_lines_in_a_json_file_lose_one_row_to_one_damaged_line():
    data = b'\n{"_id": "a"}\n{"_id": "b", "text": "x\n{"_id": "c"}\n'.lstrip()
    assert values_of(data) == [{"_id": "a"}, "broken_json", {"_id": "c"}]


@pytest.mark.parametrize(
    "data",
    [
        b'{"data": [{"_id": "a"}, {"_id": "b"}]}',
        json.dumps({"version": 1, "data": [{"_id": "a"}]}, indent=2).encode(),
        b'{"data": [' + b'{"_id": "a"},' * 10_000 + b"{}]}",
    ],
)
def test_object_around_the_documents_is_refused_with_a_remedy(data: bytes):
    ((at, damage),) = json_records(io.BytesIO(data), COLUMNS, 5_000)
    assert isinstance(damage, BadRow)
    assert (at, damage.reason, damage.unread) == (0, "damaged_file", len(data))
    assert "jq -c '.data[]'" in damage.detail


def test_document_with_a_list_of_objects_is_no_wrapper():
    row = {"_id": "a", "authors": [{"name": "b"}]}
    assert values_of(json.dumps(row).encode()) == values_of(json.dumps(row, indent=1).encode()) == [row]


def rows_of(path: Path, **source: Any) -> list[dict[str, Any]]:
    settings = SourceSettings(paths=[str(path)], **source)
    pieces = cut_files(enumerate(resolve_source(settings, {})), settings, 1_000_000, {})
    reader = Reader(settings, 4, {})
    return [row for piece in pieces for table in reader.read(piece) for row in table.to_pylist()]


def test_files_of_pandas_and_polars_are_read(tmp_path: Path):
    rows = [{"_id": f"d{i}", "text": f'a "text" {i} é\n{{}}'} for i in range(20)]
    frame = pd.DataFrame(rows)
    frame.to_json(tmp_path / "a.json", orient="records", indent=1)
    frame.to_json(tmp_path / "b.json.zip", orient="records")
    frame.to_json(tmp_path / "c.json", orient="records", lines=True)
    frame.to_json(tmp_path / "d.json.xz", orient="records", force_ascii=False)
    pl.DataFrame(rows).write_json(tmp_path / "e.json")
    (tmp_path / "f.json.lz4").write_bytes(arrow_codec(json.dumps(rows).encode(), "lz4"))
    found = rows_of(tmp_path, text_fields=["text"], stored_fields=[])
    assert [(row["doc_id"], row["text"]) for row in found] == [(row["_id"], row["text"]) for row in rows] * 6


def test_damage_in_a_compressed_array_is_counted_in_bytes_of_the_file(tmp_path: Path):
    random = Random(3)
    rows = [{"_id": f"d{i}", "text": f"{random.getrandbits(4000)}"} for i in range(400)]
    data = json.dumps(rows).encode()
    path = tmp_path / "a.json.lz4"
    path.write_bytes(arrow_codec(data[: len(data) // 2] + b'"' + data[len(data) // 2 :], "lz4"))
    *good, damage = rows_of(path, text_fields=["text"], on_damage="skip")
    assert len(good) == 200
    assert 0.45 < damage["unread_bytes"] / path.stat().st_size < 0.55
    with pytest.raises(SourceError, match=r"a\.json\.lz4 is damaged: .* 200 rows before it were read"):
        rows_of(path, text_fields=["text"])


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_wide_json_is_refused_with_a_remedy(tmp_path: Path, name: str):
    (tmp_path / name).write_text('{"_id": "a", "text": "x"}\n' * 100, encoding="utf-16")
    (damage,) = rows_of(tmp_path / name, on_damage="skip")
    assert damage["reason"] == "damaged_file"
    assert (
        "the text is in utf-16; JSON has to be in UTF-8: convert it, for example with iconv -f utf-16"
        in damage["detail"]
    )


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_dotted_paths_lead_into_objects_unless_a_key_has_that_name(tmp_path: Path, name: str):
    rows = [
        {"_id": "a", "meta": {"title": "x", "more": {"n": "1"}}},
        {"_id": "b", "meta": {"title": "no"}, "meta.title": "y"},
        {"_id": "c", "meta": ["title"], "text": "z"},
        {"_id": "d", "meta.title": None, "meta": {"title": "no"}},
    ]
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"text_fields": ["meta.title", "text"], "stored_fields": ["n"], "columns": {"n": "meta.more.n"}}
    found = rows_of(tmp_path / name, **source)
    assert [(row["text"], row["stored.n"], row["reason"]) for row in found] == [
        ("x", "1", None), ("y", None, None), ("z", None, None), (None, None, "empty_text"),
    ]  # fmt: skip


@pytest.mark.long
def test_large_array_on_one_line_needs_little_memory(tmp_path: Path):
    path = tmp_path / "a.json"
    row = json.dumps({"_id": "d", "text": "some words " * 100})
    with path.open("w") as file:
        file.write("[" + ",".join([row] * 1000))
        for _ in range(100):
            file.write("," + ",".join([row] * 1000))
        file.write("]")
    assert path.stat().st_size > 100_000_000
    code = (
        "import resource, sys\nfrom lsr_prod.corpus.formats.json_values import json_records\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "rows = sum(1 for _ in json_records(open(sys.argv[1], 'rb'), frozenset({'_id'}), 17_000_000))\n"
        "print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    rows, kilobytes = map(int, done.stdout.split())
    assert rows == 101_000
    assert kilobytes < 80_000
