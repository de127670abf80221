import errno
import gzip
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus import pinned_file
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store
from lsr_prod.storage.digest_cache import DigestCache
from lsr_prod.storage.formats.digests import digest_path


def resolve(*paths: Path | str, **source: Any) -> tuple[SourceFile, ...]:
    return tuple(resolve_source(SourceSettings(paths=[str(path) for path in paths], **source), {}))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f'{{"_id": "{name}"}}\n')


def names(folder: Path, files: tuple[SourceFile, ...]) -> list[str]:
    return [str(Path(file.location).relative_to(folder)) for file in files]


def test_paths_keep_their_order_and_names_inside_a_path_are_sorted(tmp_path: Path):
    touch(tmp_path, "z/2.jsonl", "z/10.jsonl", "z/1.jsonl", "z/deep/0.jsonl", "a.jsonl", "b.ndjson")
    assert names(tmp_path, resolve(tmp_path / "z", tmp_path / "[ab].*json*")) == [
        "z/1.jsonl", "z/10.jsonl", "z/2.jsonl", "z/deep/0.jsonl", "a.jsonl", "b.ndjson",
    ]  # fmt: skip
    assert names(tmp_path, resolve(tmp_path / "**" / "*.jsonl")) == [
        "a.jsonl", "z/1.jsonl", "z/10.jsonl", "z/2.jsonl", "z/deep/0.jsonl",
    ]  # fmt: skip


def test_file_named_by_several_paths_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, "c/a.jsonl", "c/b.jsonl")
    monkeypatch.chdir(tmp_path)
    files = resolve("c/b.jsonl", tmp_path / "c" / "*.jsonl", "./c", tmp_path / "c" / "b.jsonl")
    assert names(tmp_path, files) == ["c/b.jsonl", "c/a.jsonl"]


def test_file_named_plainly_and_through_two_dots_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, "c/a.jsonl", "c/b.jsonl", "d/x.jsonl")
    monkeypatch.chdir(tmp_path / "d")
    files = resolve("../c/a.jsonl", tmp_path / "c", "../d/../c/*.jsonl", "../d")
    assert names(tmp_path, files) == ["c/a.jsonl", "c/b.jsonl", "d/x.jsonl"]


def test_two_dots_behind_a_link_lead_to_the_parent_of_its_target(tmp_path: Path):
    touch(tmp_path, "x/y/a.jsonl", "x/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "x" / "y")
    assert names(tmp_path, resolve(tmp_path / "link" / ".." / "b.jsonl", tmp_path / "x" / "b.jsonl")) == ["x/b.jsonl"]


def test_file_is_pinned_by_size_and_sha256_but_not_by_its_folder(tmp_path: Path):
    touch(tmp_path, "here/a.jsonl", "there/a.jsonl")
    here, there = tmp_path / "here" / "a.jsonl", tmp_path / "there" / "a.jsonl"
    there.write_bytes(here.read_bytes())
    (one,), (other,) = resolve(here), resolve(there)
    assert (one.size, one.tag, one.format) == (here.stat().st_size, digest_path(here), "jsonl")
    assert one.location != other.location
    assert one.identity() == other.identity()
    there.write_bytes(here.read_bytes().replace(b"here", b"HERE"))
    assert resolve(there)[0].identity() != one.identity()


@pytest.mark.parametrize(
    ("name", "file_format"),
    [("a.PARQUET", "parquet"), ("a.ndjson", "jsonl"), ("a.jsonl.gz", "jsonl.gz"), ("a.NDJSON.gz", "jsonl.gz")],
)
def test_ending_in_any_case_selects_the_format(tmp_path: Path, name: str, file_format: str):
    touch(tmp_path, name)
    assert resolve(tmp_path / name)[0].format == file_format


def test_format_setting_overrides_the_ending(tmp_path: Path):
    touch(tmp_path, "dump.txt", "dump.gz")
    assert [file.format for file in resolve(tmp_path, format="jsonl")] == ["jsonl.gz", "jsonl"]
    assert resolve(tmp_path / "dump.txt", format="parquet")[0].format == "parquet"


@pytest.mark.parametrize("pattern", ["day1.parquet", "*.parquet", "**/*.parquet", ""])
def test_folder_named_like_a_file_yields_its_files(tmp_path: Path, pattern: str):
    touch(tmp_path, "day1.parquet/part-0.parquet", "day1.parquet/part-1.parquet", "day1.parquet/_SUCCESS")
    found = names(tmp_path, resolve(tmp_path / pattern))
    assert found == ["day1.parquet/part-0.parquet", "day1.parquet/part-1.parquet"]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_only_the_corpus_of_a_beir_folder_is_read(tmp_path: Path, name: str):
    touch(tmp_path, "queries.jsonl", "qrels/test.tsv")
    (tmp_path / name).write_bytes(gzip.compress(b"{}") if name.endswith("gz") else b"{}")
    for source_format in ("auto", "beir"):
        assert names(tmp_path, resolve(tmp_path, format=source_format)) == [name]


@pytest.mark.parametrize(
    ("path", "source", "field", "problem"),
    [
        ("nowhere.jsonl", {}, "source.paths", "there is nothing at"),
        ("*.json", {}, "source.paths", "there is nothing at"),
        ("empty", {}, "source.paths", "there is nothing at"),
        ("notes.txt", {}, "source.format", "is unknown"),
        ("a.parquet.gz", {}, "source.paths", "a.parquet.gz is a compressed .parquet file; decompress it"),
        ("a.parquet.gz", {"format": "parquet"}, "source.paths", "is a compressed .parquet file"),
        ("a.CSV.br", {}, "source.paths", "a.CSV.br is compressed as .br; compress it as .gz, .zst"),
        ("notes.txt", {"version": 0}, "source.version", "is not a Delta table"),
        ("", {"format": "beir"}, "source.paths", "has no corpus.jsonl"),
        ("", {"format": "delta"}, "source.paths", "does not open as a Delta table"),
    ],
)
def test_unreadable_source_is_named_in_the_error(tmp_path: Path, path: str, source: dict, field: str, problem: str):
    touch(tmp_path, "notes.txt", "good.jsonl", "a.parquet.gz", "a.CSV.br")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=problem) as refused:
        resolve(tmp_path / "good.jsonl", tmp_path / path, **source)
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.zst"])
def test_objects_are_pinned_by_etags_of_one_listing(
    tmp_path: Path, s3_options: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
):
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    for i in range(20):
        store.put_new(f"part-{i:02}.jsonl", b"{}" + b" " * i)
    store.put_new("_SUCCESS", b"")
    asked: list[str] = []
    entry = Store.entry
    monkeypatch.setattr(Store, "entry", lambda self, name: asked.append(name) or entry(self, name))
    files = tuple(resolve_source(SourceSettings(paths=[store.uri]), s3_options))
    assert [(file.name, file.size) for file in files] == [(f"part-{i:02}.jsonl", 2 + i) for i in range(20)]
    assert len({file.tag for file in files}) == 20
    assert len(asked) < 10  # whatever the number of files
    store.put_new(name, b"{}")
    (beir,) = resolve_source(SourceSettings(paths=[store.uri]), s3_options)
    assert (beir.name, beir.format) == (name, name.removeprefix("corpus."))


def test_files_are_hashed_shortly_before_they_are_yielded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, *(f"{i:04}.jsonl" for i in range(1000)))
    hashed: list[str] = []
    digest = DigestCache.digest
    monkeypatch.setattr(DigestCache, "digest", lambda self, path, file: hashed.append(path) or digest(self, path, file))
    monkeypatch.setattr(pinned_file.os, "cpu_count", lambda: 2)
    files: Iterator[SourceFile] = resolve_source(SourceSettings(paths=[str(tmp_path)]), {})
    assert [next(files).name for _ in range(3)] == ["0000.jsonl", "0001.jsonl", "0002.jsonl"]
    assert len(hashed) < 30
    assert [file.name for file in files] == [f"{i:04}.jsonl" for i in range(3, 1000)]


def test_json_is_read_next_to_files_of_another_format(tmp_path: Path):
    touch(tmp_path, "b.json", "a.json.gz")
    assert names(tmp_path, resolve(tmp_path)) == ["a.json.gz", "b.json"]
    touch(tmp_path, "a.jsonl", "c.csv")
    assert names(tmp_path, resolve(tmp_path)) == ["a.json.gz", "a.jsonl", "b.json", "c.csv"]
    assert names(tmp_path, resolve(tmp_path / "*.json*")) == ["a.json.gz", "a.jsonl", "b.json"]
    assert names(tmp_path, resolve(tmp_path / "b.json", tmp_path / "c.csv")) == ["b.json", "c.csv"]


@pytest.mark.parametrize("name", ["dataset_info.json", "x/dataset_infos.json", "x/v1.metadata.json", "state.json"])
def test_json_that_describes_a_folder_is_skipped_unless_a_glob_matches_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
):
    touch(tmp_path, name, "mystate.json")
    assert names(tmp_path, resolve(tmp_path)) == sorted([name, "mystate.json"])  # nothing else that it could describe
    touch(tmp_path, "z.jsonl")
    with caplog.at_level(logging.WARNING, "lsr_prod"):
        assert names(tmp_path, resolve(tmp_path)) == ["mystate.json", "z.jsonl"]
    assert [record.fields["example"] for record in caplog.records] == [f"{tmp_path}/{name}"]
    assert name in names(tmp_path, resolve(tmp_path / "**"))
    assert names(tmp_path, resolve(tmp_path / name)) == [name]


def test_skipped_files_of_a_folder_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    touch(tmp_path, "a.jsonl", "README.md", "_SUCCESS")
    with caplog.at_level(logging.WARNING, "lsr_prod"):
        assert names(tmp_path, resolve(tmp_path)) == ["a.jsonl"]
    (record,) = caplog.records
    assert record.fields == {"path": str(tmp_path), "files": 1, "example": f"{tmp_path}/README.md"}


def test_file_that_cannot_be_hashed_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, "a.jsonl")

    def refuse(*_: object) -> str:
        raise PermissionError(13, "permission denied")

    monkeypatch.setattr(DigestCache, "digest", refuse)
    with pytest.raises(ConfigError, match=r"a\.jsonl cannot be read \(.*permission denied"):
        resolve(tmp_path)


@pytest.mark.parametrize("path", ["x" * 300, "*/" + "x" * 300, "x" * 300 + "/*.jsonl", "a.jsonl/x.jsonl"])
def test_path_that_the_system_refuses_is_named_in_the_error(tmp_path: Path, path: str):
    touch(tmp_path, "y/a.jsonl", "a.jsonl")
    with pytest.raises(ConfigError) as refused:
        resolve(tmp_path / path)
    assert refused.value.field == "source.paths"


def test_source_in_a_folder_without_rights_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stat = Path.stat

    def refuse(path: Path, **options: Any) -> os.stat_result:
        if "closed" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(ConfigError, match=r"closed.* cannot be read \(Permission denied\); give paths that this user"):
        resolve(tmp_path / "closed" / "corpus")


def test_folder_formats_of_documents_are_ignored_on_request(tmp_path: Path):
    for name in ("corpus.jsonl", "pairs.jsonl"):
        (tmp_path / name).write_text("{}\n")
    settings = SourceSettings(paths=[str(tmp_path)])
    assert [file.name for file in resolve_source(settings, {})] == ["corpus.jsonl"]
    found = resolve_source(settings, {}, documents=False)
    assert [file.name for file in found] == ["corpus.jsonl", "pairs.jsonl"]
