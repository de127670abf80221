from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import CsvSettings, SourceSettings
from lsr_prod.corpus.field_types import check_columns
from lsr_prod.corpus.filelist import cut_files, list_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import WHOLE, Slice, SourceFile
from lsr_prod.errors import ConfigError

MEGABYTE = 1_000_000
SOURCE = SourceSettings(paths=["c"])


def cut(*files: SourceFile, source: SourceSettings = SOURCE, megabytes: int = 32) -> list[Slice]:
    return list(cut_files(enumerate(files), source, megabytes * MEGABYTE, {}))


def resolve(path: Path) -> tuple[SourceFile, ...]:
    return tuple(resolve_source(SourceSettings(paths=[str(path)]), {}))


def write_parquet(path: Path, **columns: Any) -> SourceFile:
    pq.write_table(pa.table(columns), path, row_group_size=100)
    (file,) = resolve(path)
    return file


def test_parquet_slices_are_whole_row_groups_of_about_the_limit(tmp_path: Path):
    random = np.random.default_rng(7)
    texts = [random.bytes(2000).hex() for _ in range(1050)]  # row groups of about 0.4 MB
    file = write_parquet(tmp_path / "c.parquet", _id=[str(i) for i in range(1050)], text=texts)
    pieces = cut(file, megabytes=1)
    footer = pq.read_metadata(tmp_path / "c.parquet")
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    assert len(groups) == 11
    assert 1 < len(pieces) < len(groups)
    assert [0, *(piece.stop for piece in pieces)] == [*(piece.start for piece in pieces), len(groups)]
    for piece in pieces:
        assert piece.first_row == sum(group.num_rows for group in groups[: piece.start])
        assert piece.size == sum(group.total_byte_size for group in groups[piece.start : piece.stop])
        assert sum(group.total_byte_size for group in groups[piece.start : piece.stop - 1]) < MEGABYTE
    assert all(piece.size >= MEGABYTE for piece in pieces[:-1])


def test_only_large_parquet_files_and_the_first_are_opened(tmp_path: Path):
    first = write_parquet(tmp_path / "0.parquet", _id=["a"], text=["x"])
    (tmp_path / "1.parquet").write_bytes(b"not Parquet, and never opened")
    (tmp_path / "2.parquet").write_bytes(b"")
    (small,) = resolve(tmp_path / "1.parquet")
    (empty,) = resolve(tmp_path / "2.parquet")
    assert cut(empty, first, small) == [
        Slice(first, 1, 0, WHOLE, 0, first.size),
        Slice(small, 2, 0, WHOLE, 0, small.size),
    ]


def test_slices_keep_file_order_when_footers_are_read_concurrently(tmp_path: Path):
    random = np.random.default_rng(7)
    files = []
    for i in range(40):
        texts = [random.bytes(2000).hex() for _ in range(300 if i % 3 else 3)]
        files.append(
            write_parquet(tmp_path / f"{i:02}.parquet", _id=[f"{i}-{j}" for j in range(len(texts))], text=texts)
        )
    pieces = cut(*files, megabytes=1)
    assert [piece.ordinal for piece in pieces] == sorted(piece.ordinal for piece in pieces)
    assert {piece.ordinal for piece in pieces if piece.stop == WHOLE} == set(range(0, 40, 3))
    assert all(piece.file == files[piece.ordinal] for piece in pieces)


def test_csv_is_cut_only_without_quotes():
    file = SourceFile("/c", "c.csv", "csv", 5 * MEGABYTE, "t")
    for quotes, stops in [(True, [5]), (False, [2, 4, 5])]:
        pieces = cut(
            file,
            source=SOURCE.model_copy(update={"csv": CsvSettings(quotes=quotes, header=["_id", "text"])}),
            megabytes=2,
        )
        assert [piece.stop // MEGABYTE for piece in pieces] == stops


def test_only_the_first_file_needs_the_columns_which_may_be_renamed(tmp_path: Path):
    file = write_parquet(tmp_path / "c.parquet", docno=["a"], body=["x"], year=[2026])
    source = SOURCE.model_copy(update={"columns": {"_id": "docno", "text": "body"}})
    other = write_parquet(tmp_path / "d.parquet", year=[2026])
    assert len(cut(file, other, source=source)) == 2
    named = replace(write_parquet(tmp_path / "e.parquet", body=["x"]), constants=(("docno", "a"),))
    assert len(cut(named, source=source)) == 1


@pytest.mark.parametrize(
    ("source", "field", "problem"),
    [
        ({"id_field": "id"}, "source.id_field", "c.parquet has no column id; use one of its columns: _id, text"),
        ({"columns": {"_id": "docno"}}, "source.id_field", "has no column docno"),
        ({"text_fields": ["body", "head"]}, "source.text_fields", "c.parquet has none of the columns body, head"),
    ],
)
def test_missing_column_of_the_first_file_is_named(tmp_path: Path, source: dict, field: str, problem: str):
    file = write_parquet(tmp_path / "c.parquet", _id=["a"], text=["x"])
    with pytest.raises(ConfigError, match=problem) as refused:
        cut(file, source=SOURCE.model_copy(update=source))
    assert refused.value.field == field


NAMED: dict[str, Any] = {"text_fields": ["title", "text"], "stored_fields": ["meta.year"], "columns": {"text": "body"}}


def check(folder: Path, **source: Any) -> None:
    settings = SourceSettings(paths=[str(folder)], **source)
    check_columns(settings, list_files(resolve_source(settings, {})), {})


def test_column_that_some_file_has_is_accepted(tmp_path: Path):
    write_parquet(tmp_path / "00.parquet", _id=["a"], body=["x"])
    write_parquet(tmp_path / "01.parquet", _id=["a"], title=["x"], year=[2026])
    write_parquet(tmp_path / "02.parquet", _id=["a"], meta=[{"year": 2026}])
    (tmp_path / "03.csv").write_text("")
    check(tmp_path, **NAMED)
    check(tmp_path, **NAMED | {"stored_fields": ["year"]})


def test_column_of_one_file_outside_the_first_sample_is_accepted(tmp_path: Path):
    for number in range(130):
        more = {"year": [2026]} if number == 35 else {}
        write_parquet(tmp_path / f"{number:03d}.parquet", _id=["a"], text=["x"], **more)
    check(tmp_path, text_fields=["text"], stored_fields=["year"])
    with pytest.raises(ConfigError, match="no file of the source has a column yaer"):
        check(tmp_path, text_fields=["text"], stored_fields=["yaer"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_fields": ["tittle", "text"]}, r"text_fields: no file of the source has a column tittle; .*; use one"),
        ({"stored_fields": ["title", "prise"]}, r"stored_fields: .* has a column prise; \S*00.parquet has _id, body"),
        (
            {"stored_fields": ["meta.yaer"]},
            r"stored_fields: .* has a column meta.yaer; .* has _id, body, meta, title; use",
        ),
        ({"columns": {"title": "head"}, "stored_fields": []}, "text_fields: .* has a column head"),
    ],
)
def test_column_of_the_settings_that_no_file_has_is_refused(tmp_path: Path, change: dict[str, Any], message: str):
    write_parquet(tmp_path / "00.parquet", _id=["a"], title=["x"], body=["x"], meta=[{"year": 2026}])
    (tmp_path / "01.csv").write_text("_id,body\na,b\n")
    with pytest.raises(ConfigError, match=f"^source.{message}"):
        check(tmp_path, **NAMED | change)


def test_column_of_a_csv_file_without_header_row_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(ConfigError, match=r"has a column prise; \S*a\.csv has _id, text; use one of"):
        check(tmp_path, stored_fields=["prise"], csv={"header": ["_id", "text"]})


def test_column_that_is_only_in_the_path_is_named(tmp_path: Path):
    (tmp_path / "lang=de" / "year=2020").mkdir(parents=True)
    write_parquet(tmp_path / "lang=de" / "year=2020" / "a.parquet", _id=["a"], text=["x"])
    with pytest.raises(ConfigError, match=r"a column year; .*; write year into the files, because"):
        check(tmp_path, text_fields=["text"], stored_fields=["text", "year"])


def test_columns_of_the_defaults_are_optional(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write_parquet(tmp_path / "a.parquet", _id=["a"], text=["x"])
    check(tmp_path)
    (tmp_path / "b.jsonl").write_text('{"_id": "b", "text": "x"}\n')
    check(tmp_path)
    assert not caplog.records


def test_column_that_no_first_record_has_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "a.jsonl").write_text('{"_id": "b", "body": "x", "meta": {"year": 1}}\n')
    check(tmp_path, **NAMED)
    check(tmp_path, **NAMED | {"text_fields": ["text"]})
    (warning,) = caplog.records
    assert warning.fields == {  # type: ignore[attr-defined]
        "columns": "title", "records": 1000, "first_file": str(tmp_path / "a.jsonl")
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"no parquet", b"PAR1" + b"\xff" * 40 + b"PAR1", b"PAR1" + b"\xff" * 2 * MEGABYTE])
def test_unreadable_footer_is_named(tmp_path: Path, data: bytes):
    (tmp_path / "c.parquet").write_bytes(data)
    with pytest.raises(ConfigError, match=r"c\.parquet is not a readable parquet file") as refused:
        cut(*resolve(tmp_path / "c.parquet"), megabytes=1)
    assert refused.value.field == "source.paths"


@pytest.mark.parametrize(
    ("file_format", "quotes", "split"),
    [
        ("jsonl", True, True),
        ("jsonl.gz", True, False),
        ("csv", True, False),
        ("csv", False, True),
        ("tsv", False, True),
        ("tsv.zst", False, False),
        ("arrow", True, False),
    ],
)
def test_only_files_without_loss_at_a_cut_are_split(file_format: str, quotes: bool, split: bool):
    file = SourceFile("/corpus", "a", file_format, 3 * MEGABYTE, "tag")
    pieces = cut(
        file, source=SourceSettings(paths=["a"], csv={"quotes": quotes, "header": ["_id", "text"]}), megabytes=1
    )
    assert len(pieces) == (3 if split else 1)


def test_field_of_a_struct_is_a_column_of_the_first_file(tmp_path: Path):
    file = write_parquet(tmp_path / "c.parquet", _id=["a"], doc=[{"body": {"text": "x"}}])
    assert len(cut(file, source=SOURCE.model_copy(update={"text_fields": ["doc.body.text"]}))) == 1
    for path in ("doc.body.title", "doc.body.text.x", "doc.x.text"):
        with pytest.raises(ConfigError, match=f"none of the columns {path}"):
            cut(file, source=SOURCE.model_copy(update={"text_fields": [path]}))
