import csv
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.delimited import delimited_records
from lsr_prod.corpus.rows import BadRow, Document, validate
from lsr_prod.corpus.source_file import DamagedFileError

SOURCE = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"])
PLAIN = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"], quotes=False)


def csv_rows(data: bytes, start: int, stop: int | None, delimiter: str, source: SourceSettings, limit: int):
    for at, record in delimited_records(io.BytesIO(data), start, stop, delimiter, source, limit):
        yield at, record if isinstance(record, BadRow) else validate(record.values, source, line=record.line)


def read(data: bytes, source: SourceSettings = SOURCE, delimiter: str = ",", limit: int = 1000) -> list:
    return list(csv_rows(data, 0, None, delimiter, source, limit))


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=12)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=8), ending=st.sampled_from(["\n", "\r\n"]))
def test_output_of_csv_writer_is_read_back(rows: list[tuple[str, str, str]], ending: str):
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=ending)
    writer.writerow(["more", "text", "_id"])
    writer.writerows((more, f"text {text}", f"{i}") for i, (more, text, _) in enumerate(rows))
    found = read(written.getvalue().encode())
    assert [row for _, row in found] == [
        Document(str(i), f"text {text}", (f"text {text}",)) for i, (_, text, _) in enumerate(rows)
    ]


def test_positions_are_byte_offsets_of_rows():
    data = b'\xef\xbb\xbf_id,text\r\na,"x\r\n\r\ny"\r\n\r\nb,z\r\n'
    assert read(data) == [
        (data.index(b"a,"), Document("a", "x\n\ny", ("x\n\ny",))),
        (data.index(b"b,"), Document("b", "z", ("z",))),
    ]


def test_header_from_settings_and_quotes_as_plain_characters():
    source = SourceSettings(
        paths=["c"], header=["pid", "passage"], columns={"_id": "pid", "text": "passage"}, text_fields=["text"],
        stored_fields=[], quotes=False,
    )  # fmt: skip
    assert read(b'1\tsay "x\n2\t"y" z\n', source, "\t") == [
        (0, Document("1", 'say "x', ())),
        (9, Document("2", '"y" z', ())),
    ]


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.binary(max_size=9).map(lambda row: row.replace(b"\n", b"x").replace(b"\r", b"x")), max_size=9),
    cuts=st.lists(st.integers(0, 90), max_size=4),
)
def test_byte_ranges_without_quotes_yield_every_row_once(rows: list[bytes], cuts: list[int]):
    data = b"\n".join([b"_id\ttext", *rows])
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    found = [
        row for start, stop in itertools.pairwise(bounds) for row in csv_rows(data, start, stop, "\t", PLAIN, 1000)
    ]
    assert found == read(data, PLAIN, "\t")
    assert len(found) == sum(bool(row.strip()) for row in rows)


def test_bad_row_does_not_end_the_file():
    found = dict(read(b'_id,text\na,x,"y\n"\nb,"caf\xe9"\n,x\nc,x\n'))
    assert [(row.reason, row.doc_id) if isinstance(row, BadRow) else row.doc_id for row in found.values()] == [
        ("wrong_field_count", None),
        ("invalid_utf8", "b"),
        ("missing_id", None),
        "c",
    ]
    assert found[9].raw == 'a,x,"y\n"\n'
    assert found[9].detail == "3 fields for 2 columns"


@pytest.mark.parametrize("source", [SOURCE, PLAIN])
def test_too_long_row_is_skipped_as_bad_row(source: SourceSettings):
    first, second = read(b"_id,text\na," + b"y" * 3_000_000 + b"\nb,x\n", source, limit=100)
    assert isinstance(first[1], BadRow)
    assert first[1].reason == "row_too_long"
    assert second == (3_000_012, Document("b", "x", ("x",)))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'_id,text\na,x\nb,"never\nclosed', "the row at byte 13 does not parse"),
        (b'_id,text\na,x\nb,"x"y\n', "source.quotes: false"),
        (b'_id,text\na,x\nb,"' + b"y\n" * 200, "is longer than any accepted text"),
        (b'_id,text\na,x\nb,"' + b"y" * 2000 + b'"', "is longer than any accepted text"),
    ],
)
def test_unclear_row_end_is_damage(data: bytes, problem: str):
    rows = csv_rows(data, 0, None, ",", SOURCE, 100)
    assert next(rows)[1] == Document("a", "x", ("x",))
    with pytest.raises(DamagedFileError, match=problem):
        next(rows)
