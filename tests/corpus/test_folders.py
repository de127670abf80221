"""Links in local sources: followed, or refused with a line that names them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with a file, and a file in another place that no link leads to yet."""
    for name in ("corpus/a.jsonl", "elsewhere/deep/b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    return tmp_path / "corpus"


def names(path: Path | str, corpus: Path, **source: Any) -> list[str]:
    files = resolve_source(SourceSettings(paths=[str(path)], **source), {})
    return [str(Path(file.location).relative_to(corpus)) for file in files]


@pytest.mark.parametrize("path", ["", "**", "**/*.jsonl", "[ax]*"])
def test_linked_folders_and_files_are_read(corpus: Path, path: str):
    (corpus / "x.parquet").symlink_to("../elsewhere")
    (corpus / "c.jsonl").symlink_to("../elsewhere/deep/b.jsonl")
    expected = ["a.jsonl", "c.jsonl", "x.parquet/deep/b.jsonl"]
    found = names(corpus / path, corpus)
    assert found == [name for name in expected if path != "[ax]*" or name != "c.jsonl"]


def test_source_may_be_a_link(corpus: Path):
    link = corpus.parent / "link"
    link.symlink_to(corpus)
    assert names(link, link) == names(link / "*", link) == ["a.jsonl"]


@pytest.mark.parametrize("path", ["", "**/*.jsonl"])
def test_cycle_is_refused_with_its_link(corpus: Path, path: str):
    (corpus / "deep").mkdir()
    (corpus / "deep" / "up").symlink_to(corpus)
    with pytest.raises(ConfigError, match=r"corpus/deep/up is a link to .*/corpus, a folder that it is in") as refused:
        names(corpus / path, corpus)
    assert refused.value.field == "source.paths"


@pytest.mark.parametrize("path", ["", "**/*.jsonl"])
@pytest.mark.parametrize("link", ["latest", "a-first"])
def test_folder_that_a_link_repeats_is_refused(corpus: Path, path: str, link: str):
    (corpus / "day-7").mkdir()
    (corpus / "day-7" / "b.jsonl").write_text("{}\n")
    (corpus / link).symlink_to("day-7")
    with pytest.raises(ConfigError, match=rf"(?=.*corpus/{link})(?=.*corpus/day-7).*are the same folder"):
        names(corpus / path, corpus)
    assert names(corpus / "day-*" / "*.jsonl", corpus) == ["day-7/b.jsonl"]


@pytest.mark.parametrize("path", ["", "*", "**", "*.jsonl", "dead.jsonl"])
def test_link_that_leads_nowhere_is_refused(corpus: Path, path: str):
    (corpus / "dead.jsonl").symlink_to("absent")
    with pytest.raises(ConfigError, match=r"dead\.jsonl is a link to absent, which does not exist"):
        names(corpus / path, corpus)


def test_link_to_itself_is_refused(corpus: Path):
    (corpus / "self").symlink_to("self")
    with pytest.raises(ConfigError, match=r"corpus/self cannot be listed \(Too many levels of symbolic links"):
        names(corpus, corpus)


def test_links_in_folders_of_metadata_are_ignored(corpus: Path):
    for marker in ("_temporary", ".git"):
        (corpus / marker).mkdir()
        (corpus / marker / "up").symlink_to(corpus)
        (corpus / marker / "dead.jsonl").symlink_to("absent")
    (corpus / "_SUCCESS").symlink_to("absent")
    assert names(corpus, corpus) == names(corpus / "**/*.jsonl", corpus) == ["a.jsonl"]


@pytest.mark.parametrize("path", ["", "**/*.jsonl", "*/*.jsonl"])
def test_folder_that_cannot_be_listed_is_refused(corpus: Path, path: str):
    (corpus / "closed").mkdir(mode=0)
    with pytest.raises(ConfigError, match="closed cannot be listed"):
        names(corpus / path, corpus)


@pytest.mark.parametrize("path", ["t/*.parquet", "**/*.parquet", "*/*.parquet", "t/**"])
def test_files_in_a_delta_table_do_not_match_a_glob(tmp_path: Path, path: str):
    for mode in ("append", "overwrite"):
        write_deltalake(tmp_path / "t", pa.table({"_id": ["a"], "text": [mode]}), mode=mode)
    with pytest.raises(ConfigError, match=r"matches the Delta table .*/t;"):
        names(tmp_path / path, tmp_path)


def test_linked_partition_of_a_delta_table_is_read(tmp_path: Path):
    table = pa.table({"_id": ["a", "b"], "text": ["x", "y"], "lang": ["de", "en"]})
    write_deltalake(tmp_path / "t", table, partition_by=["lang"])
    (tmp_path / "t" / "lang=de").rename(tmp_path / "cold")
    (tmp_path / "t" / "lang=de").symlink_to("../cold")
    assert len(names(tmp_path / "t", tmp_path)) == 2


def test_stores_do_not_follow_links_to_folders(corpus: Path):
    (corpus / "x").symlink_to("../elsewhere")
    assert Store(str(corpus)).names() == ["a.jsonl"]
