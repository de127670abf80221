import csv
import io
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import CsvSettings, SourceSettings
from lsr_prod.corpus.formats.delimited import delimited_records
from lsr_prod.corpus.formats.interface import Record
from lsr_prod.corpus.lines import BOM
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import BadRow, Document, validate

SOURCE = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"])
PLAIN = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"], csv={"quotes": False})


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
        paths=["c"],
        csv={"header": ["pid", "passage"], "quotes": False},
        columns={"_id": "pid", "text": "passage"},
        text_fields=["text"],
        stored_fields=[],
    )
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
    assert len(found) == sum(bool(row.removeprefix(BOM).strip()) for row in rows)


def test_bad_row_does_not_end_the_file():
    found = dict(read(b'_id,text\na,x,"y"\nb,"caf\xe9"\n,x\nc,x\n'))
    assert [(row.reason, row.doc_id) if isinstance(row, BadRow) else row.doc_id for row in found.values()] == [
        ("wrong_field_count", None),
        ("invalid_utf8", "b"),
        ("missing_id", None),
        "c",
    ]
    assert found[9].raw == 'a,x,"y"'
    assert found[9].detail == "3 fields for 2 columns"


@pytest.mark.parametrize("source", [SOURCE, PLAIN])
def test_too_long_row_is_skipped_as_bad_row(source: SourceSettings):
    first, second = read(b"_id,text\na," + b"y" * 3_000_000 + b"\nb,x\n", source, limit=100)
    assert isinstance(first[1], BadRow)
    assert first[1].reason == "row_too_long"
    assert second == (3_000_012, Document("b", "x", ("x",)))


@pytest.mark.parametrize(
    ("rows", "problem", "unread", "after"),
    [
        (b'b,"never\nclosed', "does not parse (unexpected end of data)", 6, []),
        (b'b,"x"y\nc,x\n', "source.csv.quotes: false", 0, ["c"]),
        (b'b,"' + b"y\n" * 200 + b"c,x\n", "is longer than any accepted text", 398, ["c"]),
        (b'b,"' + b"y" * 2000 + b'"\nc,x\n', "is longer than any accepted text", 0, ["c"]),
        (b'b,"x\nc,"y"\nd,x\n', "',' expected after '\"'", 0, ["c", "d"]),
        (b'b,t,"x\nx"\nc,x\n', "3 fields for 2 columns, over several lines", 3, ["c"]),
        (b'b" t,"x\nx"\nc,x\n', "a line of it has a quote inside a field", 3, ["c"]),
        (b'b,"x\nx",y" y\nc,x\n', "over several lines", 8, ["c"]),
        (b'b,"x"y\nc,"x\n\ny"\n', "source.csv.quotes: false", 0, ["c"]),
    ],
)
def test_row_with_unclear_end_is_one_bad_row_and_reading_resumes_at_the_next_good_row(
    rows: bytes, problem: str, unread: int, after: list[str]
):
    (_, first), (at, bad), *rest = read(b"_id,text\na,x\n" + rows, limit=100)
    assert first == Document("a", "x", ("x",))
    assert isinstance(bad, BadRow)
    assert (at, bad.reason, bad.unread) == (13, "damaged_row", unread)
    assert problem in bad.detail
    assert "at byte 13" in bad.detail
    assert [row.doc_id for _, row in rest] == after


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'_id,"te"xt\na,x\n', "the header does not parse"),
        (b"_id,text,text\n", "the header has 'text' twice"),
        (b"_id,text\ra,x\rb,y\r", "end lines with a line feed"),
    ],
)
def test_unclear_header_is_damage_of_the_whole_file(data: bytes, problem: str):
    with pytest.raises(DamagedFileError, match=problem):
        read(data)


def test_carriage_return_inside_a_field_is_kept():
    assert read(b'_id,text\r\na,x\ry\r\nb,"x\ry"\r\n') == [
        (10, Document("a", "x\ry", ("x\ry",))),
        (17, Document("b", "x\ry", ("x\ry",))),
    ]


@pytest.mark.long
def test_search_for_good_rows_is_linear_in_the_size_of_the_file():
    """Every other line opens a quote that nothing closes: a search from each of them would read megabytes."""
    data = b"_id,text\n" + b'a",b,"c\nb,x\n' * 20_000
    began = time.process_time()
    found = read(data, limit=1 << 20)
    assert time.process_time() - began < 5
    assert sum(isinstance(row, Document) for _, row in found) == 20_000
    assert sum(isinstance(row, BadRow) for _, row in found) == 20_000


@settings(max_examples=300, deadline=None)
@given(data=st.text('ab",\n\r', max_size=60).map(str.encode), limit=st.integers(5, 60))
def test_rows_and_unread_bytes_account_for_every_line(data: bytes, limit: int):
    header = b"_id,text\n"
    found = read(header + data, limit=8 + limit)
    text = header + data
    places = [at for at, _ in found]
    assert places == sorted(set(places))
    assert not text[len(header) : places[0] if places else None].strip(b"\r\n")
    for (at, row), end in zip(found, [*places[1:], len(text)], strict=False):
        first, _, rest = text[at:end].partition(b"\n")
        if isinstance(row, BadRow) and row.reason == "damaged_row":
            assert row.unread >= len(rest.strip(b"\r\n"))
        elif rest.strip(b"\r\n"):
            assert first.count(b'"') % 2, "a row that spans lines has an open quote"


@pytest.mark.parametrize("delimiter", [";", "|", " ", ":"])
@pytest.mark.parametrize("quotes", [True, False])
def test_fields_are_split_at_the_given_delimiter(delimiter: str, quotes: bool) -> None:
    source = PLAIN.model_copy(update={"csv": CsvSettings(delimiter=delimiter, quotes=quotes)})
    text = "_id;text\na;x,y\nb;z\n".replace(";", delimiter)
    found = [record for _, record in delimited_records(io.BytesIO(text.encode()), 0, None, ",", source, 1000)]
    assert [record.values for record in found if isinstance(record, Record)] == [
        {"_id": b"a", "text": b"x,y"},
        {"_id": b"b", "text": b"z"},
    ]


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "é"])
def test_impossible_delimiters_are_refused(delimiter: str) -> None:
    with pytest.raises(ValueError, match="delimiter"):
        CsvSettings(delimiter=delimiter)
