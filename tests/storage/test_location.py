"""Which texts are locations: unknown schemes are refused in every setting, argument and Store."""

import os
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from lsr_prod.config import Deployment, load_deployment
from lsr_prod.config.section import LocalPath, Location, SourceLocation, TableLocation
from lsr_prod.errors import ConfigError, LsrError, StorageError
from lsr_prod.jobs import command
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.folders import open_binary
from lsr_prod.storage.location import location_problem, path_problem, same_location, table_problem

UNKNOWN = ["s3a://b/x", "s3n://b/x", "hdfs://nn:8020/x", "http://h/x", "https://h/x", "wasb://c@a/x", "S3://b/x"]
UNKNOWN += ["file:///data/x", "file:/data/x", "s3:/b/x", "gcs://b/x", "abfs://c@a/x", "./s3://b/x", "/cwd/s3:/b/x"]
BAD_REMOTE = ["s3://", "s3:///x", "s3://b//x", "s3://b/x//y", "s3://b/../x", "s3://key:secret@b/x", "gs://u@b/x"]
BAD_REMOTE += ["s3://b/x#1", "az://c/x?sv=1&sig=secret", "s3://b/x?X-Amz-Signature=secret"]


@pytest.mark.parametrize("uri", [*UNKNOWN, *BAD_REMOTE])
def test_unsupported_uri_is_refused_by_the_store(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError) as raised:
        Store(uri).put_new("x", b"")
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["a\0b", "/a/\udcff", "s3://b/a\0b", "s3://b/\ud800"])
def test_text_that_no_path_can_be_is_refused(place: str) -> None:
    assert location_problem(place) is not None
    assert path_problem(place) is not None


@pytest.mark.parametrize("place", ["", " ", "\t\n"])
def test_blank_text_is_refused_as_a_location(place: str) -> None:
    for problem in (location_problem(place), table_problem(place), path_problem(place)):
        assert "give a path or a URI" in str(problem)
    with pytest.raises(StorageError, match="it is empty"):
        Store(place)


def test_file_of_the_root_folder_is_not_looked_for_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "absent-in-the-root.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="cannot be read"), open_binary("/absent-in-the-root.txt"):
        pass


@pytest.mark.parametrize("place", ["~", "~/zz/table", "~user/corpus*.jsonl"])
def test_home_folder_is_refused_with_the_remedy(place: str) -> None:
    for problem in (location_problem(place), table_problem(place), path_problem(place)):
        assert "write the whole path" in str(problem)
    assert location_problem(f"./{place}") is None


@pytest.mark.parametrize("uri", ["/data/x", "x", "../x", "a:b/c", "./a:/b", "C:/x", "/data/a=b%20c#1", "s3", "gs/x"])
def test_local_path_is_accepted(uri: str) -> None:
    assert location_problem(uri, pattern=False) is None
    assert path_problem(uri) is None


@pytest.mark.parametrize("uri", ["s3://b", "s3://b/x/", "gs://b/x y", "az://c/x", "abfss://c@a.dfs.core.windows.net/x"])
def test_supported_uri_is_accepted(uri: str) -> None:
    assert location_problem(uri, pattern=False) is None
    assert "local path" in str(path_problem(uri))


def test_glob_is_accepted_where_patterns_are_but_not_as_folder_of_an_artifact() -> None:
    assert location_problem("s3://b/part-?[0-9]*.parquet") is None
    assert "'?'" in str(location_problem("s3://b/t?", pattern=False))
    assert "'%'" in str(location_problem("s3://b/t%20", pattern=False))


def test_name_that_delta_rs_reads_as_another_one_is_refused_for_tables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("50%25", "back\\slash", "[x]", "a^b", "a|b", "a\tb"):
        assert "use a folder of another name" in str(table_problem(f"/data/{name}/table"))
        assert path_problem(f"/data/{name}/corpus.jsonl") is None
    for name in ("50%", "5%x", "a b", "é#?{y}:'\"*~`<>"):
        assert table_problem(f"/data/{name}/table") is None
    (tmp_path / "50%25").mkdir()
    monkeypatch.chdir(tmp_path / "50%25")
    assert "50%25/table, because of '%25'" in str(table_problem("table"))
    assert "'%'" in str(table_problem("s3://b/t%20"))
    assert table_problem("s3://b/[x]") is None


def _settings(model: type[BaseModel], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any, str]]:
    """(path, annotation, description) of every setting below a section."""
    found: list[tuple[tuple[str, ...], Any, str]] = []
    for name, field in model.model_fields.items():
        for below in _models(field.annotation):
            found += _settings(below, (*above, name))
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        found.append(((*above, name), annotation, field.description or ""))
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in get_args(annotation) for model in _models(one)]


def _typed(annotation: Any) -> bool:
    kinds = {get_args(kind)[1] for kind in (Location, LocalPath, SourceLocation, TableLocation)}
    found = set(annotation.__metadata__) if get_origin(annotation) is Annotated else set()
    return not kinds.isdisjoint(found) or any(_typed(one) for one in get_args(annotation) if one not in kinds)


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    return annotation is str or (annotation in (list[str], str | None)) or annotation == list[str] | None


# Settings whose description mentions files, but whose values are no paths.
_NO_PATHS = {
    "address", "contents", "delimiter", "document_prompt", "encoding", "header", "http_host", "id_field", "mlflow",
    "name", "partition_by", "query_prompt", "separator", "stored_fields", "wandb",
}  # fmt: skip


def test_every_setting_with_a_folder_or_file_has_the_type_of_a_location() -> None:
    words = ("folder", "file", "uri", "directory", "path", "jsonl", "judgments")
    untyped = [
        ".".join(path)
        for path, annotation, description in _settings(Deployment)
        if _is_text(annotation) and not _typed(annotation) and path[-1] not in _NO_PATHS
        if any(word in description.lower() for word in words)
    ]
    assert untyped == []


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("source: {paths: [a, 's3a://b/x']}", "source.paths.1"),
        ("encode: {bundle: b, table: 's3a://b/x'}", "encode.table"),
        ("encode: {bundle: 's3a://b/x', table: t}", "encode.bundle"),
        ("encode: {bundle: b, table: t, quarantine: 's3a://b/x'}", "encode.quarantine"),
        ("index: {bundle: b, table: t, output: 's3a://b/x'}", "index.output"),
        ("maintain: {table: t, indexes: ['s3a://b/x']}", "maintain.indexes.0"),
        ("vectors: {action: import, table: t, bundle: b, paths: ['s3a://b/x']}", "vectors.paths.0"),
        ("export: {model: m, output: 's3a://b/x'}", "export.output"),
        ("export: {model: 's3a://b/x', output: o}", "export.model"),
        ("serve: {index: 's3a://b/x'}", "serve.index"),
        ("evaluate: {index: i, queries: 's3a://b/x', qrels: q}", "evaluate.queries"),
        ("evaluate: {index: i, queries: q, qrels: q, runs: 's3a://b/x'}", "evaluate.runs"),
        (
            "train: {model: m, output: o, work: 's3a://b/x', stages: [{stage: set_encoder, casing: lowercase}]}",
            "train.work",
        ),
        ("mine: {data: {paths: ['s3a://b/x'], kind: pairs}, index: i, output: o}", "mine.data.paths.0"),
    ],
)
def test_setting_with_an_unknown_scheme_is_refused_in_one_line(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "deployment.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_deployment(["--config", str(tmp_path / "deployment.yaml")], job="lsr-prod", description="", needs=())
    assert raised.value.field == field
    assert str(raised.value) == (
        f"{field}: 's3a://b/x' is not possible; s3a:// is not supported; "
        "use a local path or s3://, gs://, az:// or abfss://"
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["search", "s3a://b/x"],
        ["index", "warm", "s3a://b/x"],
        ["inspect", "lineage", "s3a://b/x"],
        ["inspect", "lineage", "model", "--work", "s3a://b/x"],
        ["model", "m", "s3a://b/x"],
        ["model", "s3a://b/x", "m"],
        ["inspect", "vocabulary", "s3a://b/x"],
        ["inspect", "vocabulary", "m", "--texts", "s3a://b/x"],
        ["index", "takedown", "--file", "s3a://b/x"],
    ],
)
def test_argument_with_an_unknown_scheme_is_refused_in_one_line(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(argv) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "s3a://" in line
    assert "abfss://" in line
    assert not list(tmp_path.iterdir())


def test_library_refuses_an_unknown_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LsrError, match="s3a:// is not supported"):
        Searcher.open("s3a://b/x")
    with pytest.raises(LsrError, match="s3a:// is not supported"):
        Searcher.open("s3://b/x", cache="s3a://b/x")


def test_locations_are_the_same_through_links_and_slashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    table = str(tmp_path / "table")
    for other in ("table", f"{table}/", f"{tmp_path}/x/../table", str(tmp_path / "link"), os.path.relpath(table)):
        assert same_location(table, other), other
    assert same_location("/gone/a/../b", "/gone/b/")
    assert not same_location(table, "s3://b/table")
    assert same_location("s3://b/x/table", "s3://b/x//table/")
    assert same_location("az://c/table", "abfss://c@account.dfs.core.windows.net/table")
    assert not same_location("s3://b/table", "gs://b/table")
