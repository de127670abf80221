import csv
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.csv_rows import csv_rows
from lsr_prod.corpus.rows import BadRow, Document
from lsr_prod.corpus.source_file import DamagedFileError

SOURCE = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"])
PLAIN = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=["text"], quotes=False)


def read(data: bytes, source: SourceSettings = SOURCE, delimiter: str = ",", limit: int = 1000) -> list:
    return list(csv_rows(io.BytesIO(data), 0, None, delimiter, source, limit))


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=12)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=8), ending=st.sampled_from(["\n", "\r\n"]))
def test_what_a_writer_of_csv_writes_is_read_back(rows: list[tuple[str, str, str]], ending: str):
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=ending)
    writer.writerow(["more", "text", "_id"])
    writer.writerows((more, f"text {text}", f"{i}") for i, (more, text, _) in enumerate(rows))
    found = read(written.getvalue().encode())
    assert [row for _, row in found] == [
        Document(str(i), f"text {text}", (f"text {text}",)) for i, (_, text, _) in enumerate(rows)
    ]


def test_positions_are_the_bytes_at_which_rows_begin():
    data = b'\xef\xbb\xbf_id,text\r\na,"x\r\n\r\ny"\r\n\r\nb,z\r\n'
    assert read(data) == [
        (data.index(b"a,"), Document("a", "x\n\ny", ("x\n\ny",))),
        (data.index(b"b,"), Document("b", "z", ("z",))),
    ]


def test_a_header_can_be_given_and_quotes_can_be_plain_characters():
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
def test_ranges_of_a_table_without_quotes_give_every_row_once(rows: list[bytes], cuts: list[int]):
    data = b"\n".join([b"_id\ttext", *rows])
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    found = [
        row
        for start, stop in itertools.pairwise(bounds)
        for row in csv_rows(io.BytesIO(data), start, stop, "\t", PLAIN, 1000)
    ]
    assert found == read(data, PLAIN, "\t")
    assert len(found) == sum(bool(row.strip()) for row in rows)


def test_a_bad_row_is_one_row_and_the_file_goes_on():
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
def test_a_row_that_is_too_long_goes_by(source: SourceSettings):
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
def test_where_the_next_row_begins_has_to_be_known(data: bytes, problem: str):
    rows = csv_rows(io.BytesIO(data), 0, None, ",", SOURCE, 100)
    assert next(rows)[1] == Document("a", "x", ("x",))
    with pytest.raises(DamagedFileError, match=problem):
        next(rows)
