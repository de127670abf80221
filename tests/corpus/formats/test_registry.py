from typing import get_args

import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.registry import FILE_FORMATS, FOLDER_FORMATS, file_format, find_format


@pytest.mark.parametrize(
    ("name", "wanted", "found"),
    [
        ("a.PARQUET", "auto", "parquet"),
        ("a.ndjson.zst", "auto", "jsonl.zst"),
        ("a.NDJSON.gz", "auto", "jsonl.gz"),
        ("a.tsv.gz", "auto", "tsv.gz"),
        ("a.csv", "auto", "csv"),
        ("a.arrow", "auto", None),
        ("a.tsv.xz", "auto", "tsv.xz"),
        ("a.csv.zip", "auto", "csv.zip"),
        ("dump.bz2", "jsonl", "jsonl.bz2"),
        ("jsonl", "auto", None),
        ("dump.gz", "csv", "csv.gz"),
        ("dump", "tsv", "tsv"),
        ("dump.zst", "jsonl", "jsonl.zst"),
        ("dump.csv", "parquet", "parquet"),
    ],
)
def test_format_is_the_wanted_one_or_follows_from_the_ending(name: str, wanted: str, found: str | None):
    assert find_format(name, wanted) == found


def test_names_and_suffixes_are_unique_and_compressed_files_have_the_format():
    names = [found.name for found in FILE_FORMATS]
    suffixes = [suffix for found in FILE_FORMATS for suffix in found.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)
    for found in FILE_FORMATS:
        assert file_format(found.name) is found
        assert not found.compressible or file_format(f"{found.name}.gz") is file_format(f"{found.name}.zst") is found


def test_configuration_names_every_format():
    names = {found.name for found in FILE_FORMATS if found.suffixes} | {found.name for found in FOLDER_FORMATS}
    assert set(get_args(SourceSettings.model_fields["format"].annotation)) == {"auto", *names}
