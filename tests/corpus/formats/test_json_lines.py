import io
import json

from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.corpus.formats.json_lines import line_records
from lsr_prod.corpus.source_rows import BadRow


def records(content: bytes, start: int = 0, stop: int | None = None, limit: int = 100) -> list[tuple]:
    return list(line_records(io.BufferedReader(io.BytesIO(content)), start, stop, limit))


def test_record_has_its_line_and_a_line_without_an_object_is_a_bad_row():
    long = b'{"a": "' + b"x" * 200 + b'"}'
    content = b"\n".join([b"\xef\xbb\xbf" + b'{"a": 1}', b"", b"[1]", b"{", b"\xff", long, b' {"b": null} '])
    found = records(content)
    lines = [record.raw if isinstance(record, BadRow) else record.line for _, record in found]
    assert lines == [b'{"a": 1}', "[1]", "{", "\ufffd", long[:100].decode(), b' {"b": null} ']
    assert [record.reason if isinstance(record, BadRow) else record.values for _, record in found] == [
        {"a": 1}, "not_an_object", "broken_json", "invalid_utf8", "row_too_long", {"b": None},
    ]  # fmt: skip
    assert found[1][0] == content.index(b"[1]")


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=8), st.data())
def test_byte_ranges_that_tile_a_file_have_every_record_once(rows: list[dict], data: st.DataObject):
    content = b"\n".join(json.dumps(row).encode() for row in rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=4)))
    parts = [records(content, *ends, 1000) for ends in zip([0, *cuts], [*cuts, None], strict=True)]
    assert [record.values for part in parts for _, record in part] == rows
