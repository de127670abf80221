import hashlib

import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.source_file import SourceFile, cut_of, format_of
from lsr_prod.formats.digest import canonical_json


@pytest.mark.parametrize(
    ("name", "wanted", "found"),
    [
        ("a.PARQUET", "auto", "parquet"),
        ("a.ndjson.zst", "auto", "jsonl.zst"),
        ("a.NDJSON.gz", "auto", "jsonl.gz"),
        ("a.tsv.gz", "auto", "tsv.gz"),
        ("a.csv", "auto", "csv"),
        ("a.arrow", "auto", None),
        ("a.json", "auto", None),
        ("jsonl", "auto", None),
        ("dump.gz", "csv", "csv.gz"),
        ("dump", "tsv", "tsv"),
        ("dump.zst", "jsonl", "jsonl.zst"),
        ("dump.csv", "parquet", "parquet"),
    ],
)
def test_a_format_is_what_is_wanted_or_what_the_ending_says(name: str, wanted: str, found: str | None):
    assert format_of(name, wanted) == found


def test_the_key_is_64_bits_of_the_identity_wherever_the_file_lies():
    file = SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "tag", (("lang", "de"),))
    digest = hashlib.sha256(canonical_json(file.identity())).digest()
    assert file.key == int.from_bytes(digest[:8], "big", signed=True)
    assert -(2**63) <= file.key < 2**63
    assert SourceFile("s3://b", "x/a.parquet", "parquet", 7, "tag", (("lang", "de"),)).key == file.key
    others = [
        SourceFile("/corpus", "lang=de/b.parquet", "parquet", 7, "tag", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 8, "tag", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "gat", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "tag", (("lang", None),)),
        SourceFile("/corpus", "lang=de/a.parquet", "arrow", 7, "tag", (("lang", "de"),)),
    ]
    assert len({other.key for other in others} | {file.key}) == 6


@pytest.mark.parametrize(
    ("file_format", "quotes", "cut"),
    [
        ("parquet", True, "groups"),
        ("jsonl", True, "bytes"),
        ("jsonl.gz", True, "whole"),
        ("csv", True, "whole"),
        ("csv", False, "bytes"),
        ("tsv", False, "bytes"),
        ("tsv.zst", False, "whole"),
        ("arrow", True, "whole"),
    ],
)
def test_only_what_cannot_lose_a_row_is_cut(file_format: str, quotes: bool, cut: str):
    file = SourceFile("/corpus", "a", file_format, 7, "tag")  # type: ignore[arg-type]
    assert cut_of(file, SourceSettings(paths=["a"], quotes=quotes)) == cut
