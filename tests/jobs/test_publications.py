"""The subcommands publications, pin, unpin, catalog and diff, on a folder and on an object store."""

import json
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.indexing import build_index, collect_garbage, delete_documents
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store
from tests.indexing.corpus import Doc
from tests.indexing.increments import Increment, change_table, deployment, make_world
from tests.indexing.remote import upload_current

CORPUS = {f"doc{i:03d}": Doc({1: 1 + i}, f"text {i}") for i in range(40)}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index with a full build, a takedown, a delta and a full build by other settings."""
    root = tmp_path_factory.mktemp("publications")
    build_index(make_world(root, CORPUS))
    delete_documents(root / "index", ["doc000"], note="asked for")
    change_table(root, Increment({"new": Doc({3: 3}), "doc001": Doc({4: 4})}, ["doc002"]))
    build_index(deployment(root))
    build_index(deployment(root, shards=1))
    return root / "index"


def run(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> str:
    assert main(["index", *(str(one) for one in argv)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def run_json(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *argv, "--json"))
    return found


def test_publications_say_when_why_and_what_changed(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "publications", index)["publications"]
    assert [one["number"] for one in found] == [4, 3, 2, 1]
    assert [one["current"] for one in found] == [True, False, False, False]
    assert [one["documents"] for one in found] == [39, 39, 39, 40]
    assert found[3]["difference"] is None
    assert found[2]["difference"]["takedowns_changed"]
    assert found[1]["difference"]["lineage"] == {"table_version": [1, 2]}
    assert (found[1]["difference"]["shards_added"], found[1]["difference"]["shards_shared"]) == (1, 2)
    assert "layout" in found[0]["difference"]["settings"]
    shown = run(capsys, "publications", index, "--last", 3)
    assert "asked for" in shown
    assert "table version 1 -> 2; +1 -0 shards" in shown
    assert len(run_json(capsys, "publications", index, "--last", 1)["publications"]) == 1


def test_diff_lists_the_documents_that_changed(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "diff", index, "--from", 2, "--to", 3, "--documents")
    assert (found["added"], found["removed"], found["rewritten"]) == (["new"], ["doc002"], ["doc001"])
    assert found["documents"] == 0
    whole = run_json(capsys, "diff", index, "--documents")
    assert (whole["from"], whole["to"]) == (3, 4)
    assert (whole["added"], whole["removed"], len(whole["rewritten"])) == ([], [], 39)
    assert "doc002" in run(capsys, "diff", index, "--from", 2, "--to", 3, "--documents")
    assert "has no publication before 1; give two numbers" in run(capsys, "diff", index, "--to", 1, code=1)


def test_pin_keeps_a_publication_and_unpin_releases_it(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pinned = run_json(capsys, "pin", index, "--publication", 1, "--reason", "audit", "--by", "ada")
    assert (pinned["number"], pinned["by"], pinned["reason"], pinned["created"]) == (1, "ada", "audit", True)
    assert not run_json(capsys, "pin", index, "--publication", 1, "--reason", "again")["created"]
    found = run_json(capsys, "publications", index)["publications"]
    assert [one["pin"] is not None for one in found] == [False, False, False, True]
    states = {tuple(one["publications"]): one["state"] for one in run_json(capsys, "catalog", index)["versions"]}
    assert states == {(4,): "current", (3,): "published", (2,): "published", (1,): "pinned"}
    assert "pinned" in run(capsys, "publications", index)
    assert run_json(capsys, "unpin", index, "--publication", 1)["number"] == 1
    assert "publication 1 of" in run(capsys, "unpin", index, "--publication", 1, code=1)


def test_bad_usage_is_one_line(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["pin", index], ["unpin", index], ["publications"], ["publications", index, "--last", 0]):
        assert len(run(capsys, *argv, code=2).splitlines()) == 1
    for name in ("publications", "pin", "catalog", "diff"):
        reason = ["--reason", "x"] if name == "pin" else []
        line = run(capsys, name, tmp_path / "nowhere", *reason, code=1)
        assert "has no publication" in line
        assert len(line.splitlines()) == 1


def test_catalog_of_an_object_store_has_sizes_and_lineage(
    index: Path, s3_options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(f"s3://lsr/catalog-{tmp_path.name}", s3_options)
    upload_current(index, store)
    options = [one for name, value in s3_options.items() for one in ("--store-option", f"{name}={value}")]
    (entry,) = run_json(capsys, "catalog", store.uri, *options)["versions"]
    assert (entry["state"], entry["documents"], entry["shards"], entry["table_version"]) == ("current", 39, 1, 2)
    assert 0 < entry["own_bytes"] <= entry["bytes"]
    assert entry["table_uri"] == str(index.parent / "table")
    assert store.uri in run(capsys, "publications", store.uri, *options)
    assert collect_garbage(store, keep=1, age_s=0).objects == 0
