import os
from pathlib import Path

import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import is_marker
from lsr_prod.corpus.listing import find_files, resolve_source
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store

NAMES = ["a.jsonl", "b.jsonl", "x/a.jsonl", "x/y/a.jsonl", "x/lang=de/_k=v/a.jsonl", "[c].jsonl"]
MARKERS = ["_SUCCESS", "x/_temporary/a.jsonl", "x/.a.jsonl", ".git/a.jsonl"]


@pytest.fixture(params=["local", "s3"])
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Folder and options: the same files on a disk and in an object store."""
    options = request.getfixturevalue("s3_options") if request.param == "s3" else {}
    folder = f"s3://lsr/{tmp_path.name}" if request.param == "s3" else str(tmp_path)
    for name in [*NAMES, *MARKERS]:
        Store(folder, options).put_new(name, name.encode())
    return folder, options


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", sorted(NAMES)),
        ("x", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("x/", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("*.jsonl", ["[c].jsonl", "a.jsonl", "b.jsonl"]),
        ("?.jsonl", ["a.jsonl", "b.jsonl"]),
        ("[!b].jsonl", ["a.jsonl"]),
        ("[c].jsonl", ["[c].jsonl"]),
        ("*/a.jsonl", ["x/a.jsonl"]),
        ("**/a.jsonl", ["a.jsonl", "x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("x/**/a.*", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("_SUCCESS", ["_SUCCESS"]),
        ("absent", []),
        ("*.csv", []),
    ],
)
def test_path_selects_the_same_files_on_every_store(corpus: tuple[str, dict[str, str]], path: str, names: list[str]):
    folder, options = corpus
    found = list(find_files(f"{folder}/{path}", options))
    assert [f"{uri.rstrip('/')}/{entry.name}".removeprefix(f"{folder}/") for uri, entry in found] == names
    assert [entry.size for _, entry in found] == [len(name) for name in names]


def test_markers_are_recognized_by_name():
    assert all(is_marker(name) for name in MARKERS)
    assert not any(is_marker(name) for name in NAMES)


def test_folder_may_be_named_by_a_path_that_ends_in_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "a.jsonl").write_text("{}")
    monkeypatch.chdir(tmp_path / "x")
    for path in ("..", "../", f"{tmp_path}/x/.."):
        assert [entry.name for _, entry in find_files(path, {})] == ["a.jsonl"]


def test_folder_whose_name_ends_like_a_delta_log_is_read(tmp_path: Path):
    (tmp_path / "old_delta_log").mkdir()
    (tmp_path / "old_delta_log" / "a.jsonl").write_text("{}")
    assert [entry.name for _, entry in find_files(str(tmp_path), {})] == ["old_delta_log/a.jsonl"]


def test_name_that_is_not_utf_8_is_refused(tmp_path: Path):
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_text('{"_id": "a", "text": "x"}')
    with pytest.raises(ConfigError, match="has a name that is not valid UTF-8; rename it"):
        list(resolve_source(SourceSettings(paths=[str(tmp_path)]), {}))
