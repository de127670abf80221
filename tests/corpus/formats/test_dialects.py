"""CSV files as other programs write them."""

import csv
import io
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lsr_prod.config import CsvSettings, SourceSettings
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.formats.delimited import delimited_records
from lsr_prod.corpus.formats.interface import Record
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import ConfigError, SourceError

TEXTS = [
    'a "quoted", word',
    "two\nlines; and | a 'quote'",
    "C:\\temp\\new \\",
    '\\"',
    '"\\',
    "\\\\",
    "",
    "plain",
    "ends with \\\nand goes on",
    'say ""twice"", \\, \\n',
]
LATIN = [*TEXTS, "café ÿþ £"]


def parsed(data: bytes, **dialect: Any) -> list[list[str] | str]:
    source = SourceSettings(paths=["c"], csv=dialect)
    rows = delimited_records(io.BytesIO(data), 0, None, ",", source, 10_000)
    return [
        row.reason if isinstance(row, BadRow) else [value.decode() for value in row.values.values()] for _, row in rows
    ]


def rows_of(texts: list[str]) -> list[list[str]]:
    return [[str(i), text, "end"] for i, text in enumerate(texts)]


def written(texts: list[str], encoding: str = "utf-8", **dialect: Any) -> bytes:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n", **dialect).writerows([["_id", "text", "more"], *rows_of(texts)])
    return sink.getvalue().encode(encoding)


CHARACTERS = st.one_of(
    st.sampled_from("\"'\\,;|\n a^"), st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")
)


@settings(deadline=None, max_examples=300)
@given(
    texts=st.lists(st.text(CHARACTERS, max_size=12), max_size=6),
    quote=st.sampled_from("\"'"),
    escape=st.sampled_from(["\\", "^", None]),
    delimiter=st.sampled_from(",;|\t"),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-32-be", "gb18030", "utf-8-sig"]),
)
@example(TEXTS, '"', "\\", ",", csv.QUOTE_ALL, "utf-8")
def test_every_dialect_of_the_csv_module_is_read_back(
    texts: list[str], quote: str, escape: str | None, delimiter: str, quoting: int, encoding: str
):
    data = written(
        texts,
        encoding,
        quotechar=quote,
        escapechar=escape,
        doublequote=escape is None,
        delimiter=delimiter,
        quoting=quoting,
    )
    found = parsed(data, quote=quote, escape=escape, delimiter=delimiter, encoding=encoding)
    assert found == rows_of(texts)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_pandas_with_an_escape_character(quoting: int):
    frame = pd.DataFrame(rows_of(LATIN), columns=["_id", "text", "more"])
    for encoding in ("utf-8", "cp1252", "utf-16", "utf-16-le", "latin-1"):
        sink = io.BytesIO()
        frame.to_csv(sink, index=False, escapechar="\\", doublequote=False, quoting=quoting, encoding=encoding)
        assert parsed(sink.getvalue(), escape="\\", encoding=encoding) == rows_of(LATIN)


def test_duckdb_with_an_escape_character(tmp_path: Path):
    frame = pd.DataFrame(rows_of(LATIN), columns=["_id", "text", "more"])  # noqa: F841, duckdb reads it by its name
    for quote in ('"', "'"):
        path = tmp_path / "a.csv"
        marks = quote.replace("'", "''")
        duckdb.sql(f"COPY frame TO '{path}' (HEADER, DELIMITER '|', QUOTE '{marks}', ESCAPE '\\', FORCE_QUOTE (text))")
        assert parsed(path.read_bytes(), delimiter="|", quote=quote, escape="\\") == rows_of(LATIN)


def test_polars_with_other_quotes():
    data = pl.DataFrame(rows_of(LATIN), ["_id", "text", "more"], orient="row")
    text = data.write_csv(separator=";", quote_char="'", include_bom=True)
    assert parsed(text.encode(), delimiter=";", quote="'") == rows_of(LATIN)


@pytest.mark.parametrize("program", ["mysql", "postgresql", "spark"])
def test_backslash_before_an_ordinary_character_is_kept(program: str):
    data = {
        "mysql": b'_id,text\n1,"a \\"quoted\\", word"\n2,a\\,b\n3,"two\\\nlines"\n',
        "postgresql": b'_id,text\n1,"a \\"quoted\\", word"\n2,"a,b"\n3,"two\nlines"\n4,"C:\\\\temp"\n5,C:\\temp\n',
        "spark": b'_id,text\n1,"a \\"quoted\\", word"\n2,"a,b"\n3,"two\nlines"\n4,"C:\\temp"\n5,C:\\temp\n',
    }[program]
    expected = ['a "quoted", word', "a,b", "two\nlines", "C:\\temp", "C:\\temp"]
    assert [row[1] for row in parsed(data, escape="\\")] == expected[: 3 if program == "mysql" else 5]


def test_row_that_does_not_parse_is_one_bad_row_with_its_bytes_counted():
    data = written(TEXTS, quotechar='"', escapechar="\\", doublequote=False, quoting=csv.QUOTE_ALL)
    broken = data.replace(b'"plain"', b'"pl"ain\\"\nand more"')
    source = SourceSettings(paths=["c"], csv=CsvSettings(escape="\\"))
    found = [row for _, row in delimited_records(io.BytesIO(broken), 0, None, ",", source, 10_000)]
    bad = [row for row in found if isinstance(row, BadRow)]
    assert [row.reason for row in bad] == ["damaged_row"]
    assert bad[0].unread == len(b'and more","end"\n')
    assert len(found) == len(TEXTS)


def test_damage_of_a_wide_text_is_counted_in_its_own_bytes():
    data = '_id,text\n1,x\n2,"open\né\ny\n3,z\n'.encode("utf-16-le")
    source = SourceSettings(paths=["c"], csv=CsvSettings(encoding="utf-16-le"))
    *_, bad, last = (row for _, row in delimited_records(io.BytesIO(data), 0, None, ",", source, 100))
    assert isinstance(last, Record)
    assert isinstance(bad, BadRow)
    assert abs(bad.unread - 2 * len("é\ny\n")) <= 2


@pytest.mark.parametrize(
    ("encoding", "invalid"), [("cp1252", b"\x81"), ("shift_jis", b"\xff"), ("utf-16-le", b"\0\xd8")]
)
def test_bytes_that_an_encoding_lacks_make_a_bad_row(tmp_path: Path, encoding: str, invalid: bytes):
    rows = ["_id,text\na,x", "b,y", "c,z\n"]
    data = rows[0].encode(encoding) + invalid + "\n".join(["", *rows[1:]]).encode(encoding)
    (tmp_path / "a.csv").write_bytes(data)
    source = SourceSettings(paths=[str(tmp_path)], text_fields=["text"], stored_fields=[], csv={"encoding": encoding})
    assert reasons(source) == ["invalid_utf8", None, None]


@pytest.mark.parametrize(
    "encoding",
    [
        "iso2022_jp", "iso2022_jp_1", "iso2022_jp_2", "iso2022_jp_3", "iso2022_jp_2004", "ISO-2022-JP-EXT",
        "iso2022_kr", "hz", "utf_7", "raw_unicode_escape", "shift_jis_2004", "euc_jp", "gb18030", "big5", "cp949",
    ],
)  # fmt: skip
@pytest.mark.parametrize("quotes", [True, False])
def test_characters_of_every_east_asian_encoding_are_decoded(encoding: str, quotes: bool):
    data = "_id,text\n1,plain\n2,\u3042\u3044\n3,\u3046 x\n".encode(encoding)
    found = parsed(data, encoding=encoding, quotes=quotes)
    assert found == [["1", "plain"], ["2", "\u3042\u3044"], ["3", "\u3046 x"]]


def reasons(source: SourceSettings) -> list[str | None]:
    pieces = cut_files(enumerate(resolve_source(source, {})), source, 1_000_000, {})
    tables = [table for piece in pieces for table in Reader(source, 4, {}).read(piece)]
    return [row["reason"] for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("quotes", [True, False])
def test_wide_text_without_the_setting_is_refused_with_the_setting(tmp_path: Path, encoding: str, quotes: bool):
    (tmp_path / "b.csv").write_text("_id,text\na,x\n", encoding=encoding)
    source = SourceSettings(paths=[str(tmp_path)], csv=CsvSettings(quotes=quotes))
    with pytest.raises(ConfigError, match=r"b\.csv: the text is in utf-") as refused:
        reasons(source)
    assert refused.value.field == "source.csv.encoding"
    named = encoding if encoding == "utf-32" or encoding[6:] else "utf-16"
    assert f"source.csv.encoding: {named}" in str(refused.value)
    assert reasons(source.model_copy(update={"csv": CsvSettings(quotes=quotes, encoding=named)})) == [None]
    (tmp_path / "a.csv").write_text("_id,text\nb,x\n", encoding="utf-8")  # the first file is as the settings say
    with pytest.raises(SourceError, match=r"b\.csv is damaged: the text is in utf-.*set source.csv.encoding"):
        reasons(source)
    assert reasons(source.model_copy(update={"on_damage": "skip"})) == [None, "damaged_file"]


@pytest.mark.long
def test_file_of_a_superset_of_ascii_is_split_at_its_own_bytes(tmp_path: Path):
    rows = [f"d{i}\tcafé {i}\n" for i in range(50_000)]
    (tmp_path / "a.tsv").write_text("_id\ttext\n" + "".join(rows), encoding="latin-1")
    source = SourceSettings(
        paths=[str(tmp_path)], stored_fields=[], csv=CsvSettings(quotes=False, encoding="latin-1"), text_fields=["text"]
    )
    pieces = list(cut_files(enumerate(resolve_source(source, {})), source, 300_000, {}))
    assert len(pieces) == 3
    tables = [table for piece in pieces for table in Reader(source, 4, {}).read(piece)]
    assert [text for table in tables for text in table["text"].to_pylist()] == [f"café {i}" for i in range(50_000)]
    (wide,) = cut_files(
        enumerate(resolve_source(source, {})),
        source.model_copy(update={"csv": CsvSettings(quotes=False, encoding="utf-16", header=["_id", "text"])}),
        300_000,
        {},
    )
    assert wide.stop == wide.file.size


@pytest.mark.parametrize("quotes", [True, False])
def test_files_that_were_joined_lose_their_marks_and_headers(quotes: bool):
    one, mark = '_id,text\n1,"x"\n' if quotes else "_id,text\n1,x\n", b"\xef\xbb\xbf"
    data = (mark + one.encode()) * 3
    assert parsed(data, quotes=quotes) == [["1", "x"]] * 3
    assert parsed(data, quotes=quotes, header=["_id", "text"]) == [["1", "x"]] * 3


@pytest.mark.parametrize(
    ("dialect", "problem"),
    [
        ({"quotes": False, "escape": "\\"}, "quotes is false"),
        ({"quotes": False, "quote": "'"}, "quotes is false"),
        ({"delimiter": ";", "escape": ";"}, "has to differ"),
        ({"quote": ","}, "has to differ"),
        ({"quote": "é"}, "pattern"),
        ({"escape": "\n"}, "pattern"),
        ({"encoding": "utf-9"}, "not an encoding"),
        ({"encoding": "rot13"}, "not an encoding"),
        ({"encoding": "a\0"}, "not an encoding"),
        ({"encoding": "undefined"}, "not an encoding"),
    ],
)
def test_impossible_dialects_are_refused(dialect: dict[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        CsvSettings.model_validate(dialect)


def test_quote_that_escapes_itself_is_the_rule_without_an_escape():
    assert CsvSettings(escape='"').escape is None


@pytest.mark.parametrize("data", [b'_id,text\n1,"a \\"quoted\\", word"\n2,x\n', b'"_id \\"",text\n'])
def test_backslash_quotes_without_the_setting_are_refused_with_the_setting(tmp_path: Path, data: bytes):
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(SourceError, match=r"set source\.csv\.escape: '\\'"):
        reasons(SourceSettings(paths=[str(tmp_path)]))
