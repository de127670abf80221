"""Checks on every node: real Ray tasks look up files that are there or not."""

from pathlib import Path
from typing import Any

import pytest

from lsr_prod.cluster import workers
from lsr_prod.cluster.workers import on_every_node, require_files, require_shared_folders, spread, summarize_nodes
from lsr_prod.config import SourceSettings
from lsr_prod.corpus import read
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import require_source_on_nodes
from lsr_prod.errors import ConfigError, StorageError


@pytest.fixture
def several_nodes(ray_local: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one node counts as several: what it lacks is missing on a node."""
    for module in (workers, read):
        monkeypatch.setattr(module, "has_several_nodes", lambda: True)


def add(one: int, other: int) -> int:
    return one + other


def test_function_runs_once_on_every_node(ray_local: None):
    assert not workers.has_several_nodes()
    ((name, result),) = on_every_node(add, 3, 4)
    assert result == 7
    assert name.endswith("(127.0.0.1)")


def test_source_that_a_node_lacks_is_refused_with_file_and_node(tmp_path: Path, several_nodes: None):
    for name in ("one/a.jsonl", "one/b.jsonl", "two/c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    source = SourceSettings(paths=[str(tmp_path / "one"), str(tmp_path / "two")])
    files = list(resolve_source(source, {}))
    require_source_on_nodes(files)
    (tmp_path / "two" / "c.jsonl").write_text("[]\n")
    with pytest.raises(ConfigError, match=r"^source\.paths: .*/two/c\.jsonl has another content on 1 of 1 nodes: .*"):
        require_source_on_nodes(files)
    (tmp_path / "one" / "b.jsonl").unlink()
    (tmp_path / "two" / "c.jsonl").write_text("{}\n")
    message = r"^data\.paths: .*/one/b\.jsonl is not on 1 of 1 nodes: .*\(127\.0\.0\.1\); put the files into an object"
    with pytest.raises(ConfigError, match=message):
        require_source_on_nodes(files, field="data.paths")


def test_files_that_a_node_lacks_are_refused(tmp_path: Path, several_nodes: None):
    (tmp_path / "a").write_text("12")
    require_files("index.table", [])
    require_files("index.table", [(str(tmp_path / "a"), 2)])
    for file, size in ((tmp_path / "a", 3), (tmp_path / "b", 0)):
        with pytest.raises(ConfigError, match=rf"^index\.table: {file} is missing or differs on 1 of 1 nodes"):
            require_files("index.table", [(str(tmp_path / "a"), 2), (str(file), size)])


def test_folder_that_all_nodes_see_is_left_as_it_was(tmp_path: Path, several_nodes: None):
    (tmp_path / "there").mkdir()
    folders = {"encode.table": str(tmp_path / "new" / "table"), "encode.quarantine": str(tmp_path / "there")}
    require_shared_folders(folders | {"index.output": "s3://lsr/index"})
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_folder_that_a_node_does_not_see_is_refused_and_left_as_it_was(
    tmp_path: Path, several_nodes: None, monkeypatch: pytest.MonkeyPatch
):
    def elsewhere(function: Any, files: list[tuple[str, int]]) -> list[tuple[str, set[str]]]:
        """Look the files up in another folder, as a node does that has another disk at this path."""
        there = {file.replace("/table/", "/other/"): file for file, _ in files}
        found = on_every_node(function, [(file, 0) for file in there])
        return [(name, {there[file] for file in missing}) for name, missing in found]

    monkeypatch.setattr(workers, "on_every_node", elsewhere)
    with pytest.raises(ConfigError, match=rf"^encode\.table: {tmp_path}/table is not the same folder on 1 of 1 nodes"):
        require_shared_folders({"encode.table": str(tmp_path / "table")})
    assert list(tmp_path.rglob("*")) == []


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path, several_nodes: None):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/table cannot be written"):
        require_shared_folders({"encode.table": str(tmp_path / "file" / "table")})


def test_sample_is_spread_with_first_and_last():
    assert spread(list(range(1000)), 3) == [0, 499, 999]
    assert spread([1, 2], 3) == [1, 2]


def test_message_names_at_most_five_nodes():
    assert summarize_nodes(["a"], 3) == "1 of 3 nodes: a"
    assert summarize_nodes(list("abcdefg"), 9) == "7 of 9 nodes: a, b, c, d, e and 2 more"
