"""The nightly chain on a small collection is idempotent."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod import Searcher
from lsr_prod.jobs.command import load
from lsr_prod.storage.formats.bundle_format import Bundle
from lsr_prod.storage.publications import current_publication
from quickstart.docstrings import collect, write_collection
from tests.nights.bundles import make_bundle

ROOT = Path(__file__).parents[2]
DOCUMENTS, QUERIES = 300, 30


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    folder = tmp_path_factory.mktemp("reindex")
    write_collection(folder / "collection", collect(DOCUMENTS), QUERIES)
    deployment = {
        "source": {"paths": [f"{folder}/collection"], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": str(tiny_bundle), "table": f"{folder}/table", "buckets": 4, "probe_documents": 64},
        "index": {
            "table": f"{folder}/table",
            "bundle": str(tiny_bundle),
            "output": f"{folder}/index",
            "text_fields": ["text"],
            "shards": 2,
        },
        "evaluate": {
            "index": f"{folder}/index",
            "queries": f"{folder}/collection/queries.jsonl",
            "qrels": f"{folder}/collection/qrels/test.tsv",
            "measures": ["RR@10", "R@10"],
            "runs": f"{folder}/runs",
        },
    }
    (folder / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    return folder / "deployment.yaml"


def _run(job: str, config: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code = load(job).run(["--config", str(config), *argv])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    (line,) = [line for line in captured.out.splitlines() if line.startswith("RESULT ")]
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


def _contents(index: Path) -> list[Path]:
    """Everything in an index but the records of its nights."""
    return sorted(path for path in index.rglob("*") if "nights" not in path.relative_to(index).parts)


@pytest.mark.long
def test_reindex_run_twice_ends_in_state_of_one_run(
    config: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = config.parent
    first = _run("reindex", config, capsys)
    state = _contents(folder / "index")
    second = _run("reindex", config, capsys)
    assert first["encode.rows_out"] == first["index.documents"] == DOCUMENTS
    assert second["encode.waves_skipped"] == second["encode.waves"]
    assert second["encode.table_digest"] == first["encode.table_digest"]
    assert _contents(folder / "index") == state
    assert [night.name.split(".")[1] for night in sorted((folder / "index/nights").iterdir())] == [
        "published",
        "unchanged",
    ]
    assert current_publication(folder / "index").number == 1
    third = _run("reindex", config, capsys, "--index.publish", "false")
    assert "evaluate.systems" not in third  # it would measure the version that was published before

    by_name = {system["name"]: system for system in second["evaluate.systems"]}
    assert set(by_name) == {"bm25", "threshold 0", "threshold 0.2", "threshold 0.4", "threshold 0.6"}
    matched = [by_name[f"threshold {t}"]["matched"] for t in ("0", "0.2", "0.4", "0.6")]
    assert matched == sorted(matched, reverse=True)
    assert by_name["threshold 0"]["measures"]["RR@10"] > 0.3
    assert len(list((folder / "runs").glob("*.trec"))) == 5


def test_text_of_docstring_finds_its_document(
    config: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("reindex", config, capsys)
    searcher = Searcher.open(config.parent / "index")
    with (config.parent / "collection" / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    row = max(rows, key=lambda row: len(row["text"]))
    assert searcher.search(row["text"][:300], k=3).hits[0].doc_id == row["_id"]


@pytest.mark.long
def test_reindex_after_few_changes_builds_few_documents(
    config: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("reindex", config, capsys)
    corpus = config.parent / "collection" / "corpus.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines()
    kept = lines[3:-2]  # the file has changed, so every part of the table is replaced
    changed = [json.dumps({**json.loads(line), "text": "a lock that nobody holds"}) for line in lines[-2:]]
    new = json.dumps({"_id": "new", "title": "", "text": "a shelf of zinc ingots"})
    corpus.write_text("\n".join([*kept, *changed, new]) + "\n", encoding="utf-8")
    result = _run("reindex", config, capsys)
    assert [result[f"index.{name}"] for name in ("mode", "upserts", "deletes", "documents_rebuilt")] == [
        "delta",
        3,
        3,
        3,
    ]
    assert (result["index.documents"], result["index.publication"], result["collect.objects"]) == (DOCUMENTS - 2, 2, 0)
    searcher = Searcher.open(config.parent / "index")
    assert searcher.search("a shelf of zinc ingots", k=1).hits[0].doc_id == "new"
    gone = {json.loads(line)["_id"] for line in lines[:3]}
    assert not gone & {hit.doc_id for hit in searcher.search("the", k=DOCUMENTS).hits}


@pytest.mark.long
def test_new_bundle_makes_table_and_index_next_to_the_old_ones(
    config: Path, splade_tiny: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
) -> None:
    other, corpus = make_bundle(splade_tiny, tmp_path, 1), tmp_path / "corpus.jsonl"
    lines = [json.dumps({"_id": str(i), "text": f"the shelf of zinc number {i}"}) for i in range(30)]
    corpus.write_text("\n".join(lines) + "\n")
    given = yaml.safe_load(config.read_text())
    del given["evaluate"]
    given["source"]["paths"] = [str(corpus)]
    given["encode"]["table"] = given["index"]["table"] = f"{tmp_path}/table"
    given["index"]["output"] = f"{tmp_path}/index"
    files = {name: tmp_path / f"{name}.yaml" for name in ("blue", "green")}
    files["blue"].write_text(yaml.safe_dump(given))
    digest = Bundle.load(other).digest
    given["encode"]["bundle"] = given["index"]["bundle"] = str(other)
    files["green"].write_text(yaml.safe_dump(given))

    blue = _run("reindex", files["blue"], capsys)
    before = sorted((tmp_path / "table").rglob("*.parquet"))
    green = _run("reindex", files["green"], capsys)
    assert green["encode.table"] == f"{blue['encode.table']}-{digest[:12]}"
    assert (green["encode.rows_out"], green["index.mode"], green["index.reason"]) == (
        30,
        "full",
        "another table or bundle",
    )
    assert sorted((tmp_path / "table").rglob("*.parquet")) == before
    _check_jobs_follow_table(files, green["encode.table"], tmp_path, capsys)
    searcher = Searcher.open(tmp_path / "index")
    assert searcher.version.bundle_digest == digest
    assert _run("index rollback", files["green"], capsys, "--to", "1")["version"] == blue["index.version"]
    again = _run("reindex", files["green"], capsys)  # the configured bundle is published again, from shards that exist
    assert (again["index.version"], again["index.documents_rebuilt"], again["collect.tables"]) == (
        green["index.version"],
        0,
        0,
    )
    searcher = Searcher.open(tmp_path / "index")
    retention = ["--index.keep_publications", "1", "--index.keep_hours", "0"]
    time.sleep(0.05)
    retired = _run("reindex", files["green"], capsys, *retention)
    assert retired["collect.tables"] == 1
    assert not list((tmp_path / "table").rglob("*.parquet"))
    assert len(searcher.search("zinc", k=30).hits) == 30
    assert {path.name for path in (tmp_path / "index" / "versions").glob("*")} == {f"{green['index.version']}.json"}
    assert load("encode").run(["--config", str(files["blue"])]) == 2
    assert "was retired" in capsys.readouterr().err
    back = _run("reindex", files["blue"], capsys)
    assert back["encode.table"].rpartition("-")[2] == blue["encode.bundle_digest"][:12]
    assert back["encode.table_digest"] == blue["encode.table_digest"]
    assert back["index.documents"] == 30


def _check_jobs_follow_table(
    files: dict[str, Path], table: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that all jobs work on the table of the bundle that their deployment names."""
    encoded = _run("encode", files["green"], capsys)
    assert (encoded["table"], encoded["waves_skipped"]) == (table, encoded["waves"])
    assert _run("index build", files["green"], capsys)["mode"] == "unchanged"
    found = {}
    for name, config in files.items():
        assert load("table status").run(["--config", str(config), "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)["table"]
    assert found == {"blue": f"{folder}/table", "green": table}
    assert load("table quarantine").run(["--config", str(files["green"])]) == 0
    maintained = yaml.safe_load(files["green"].read_text())
    maintained["maintain"] = {"table": f"{folder}/table", "indexes": [f"{folder}/index"], "dry_run": True}
    (folder / "maintain.yaml").write_text(yaml.safe_dump(maintained))
    capsys.readouterr()
    assert _run("table maintain", folder / "maintain.yaml", capsys)["table"] == table


@pytest.mark.slow
def test_reindex_started_twice_at_once_ends_in_state_of_one_run(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = yaml.safe_load(config.read_text())
    del deployment["evaluate"]
    deployment["encode"]["table"] = deployment["index"]["table"] = f"{tmp_path}/table"
    deployment["index"]["output"] = f"{tmp_path}/index"
    deployment["ray"] = {"num_cpus": 2}
    twice = tmp_path / "deployment.yaml"
    twice.write_text(yaml.safe_dump(deployment))
    command = [sys.executable, "jobs/reindex.py", "--config", str(twice)]
    both = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(one.communicate(timeout=300)[1].splitlines()[-1], one.returncode) for one in both]
    # Of two concurrent encode jobs, the newer attempt fences the older one, which waits for it.
    assert [code for _, code in ended] == [0, 0], ended
    assert current_publication(tmp_path / "index").number == 1
    again = _run("reindex", twice, capsys)
    assert (again["index.mode"], again["index.publication"]) == ("unchanged", 1)
    assert again["encode.waves_skipped"] == again["encode.waves"]


def test_reindex_refuses_settings_that_do_not_chain(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = load("reindex").run(["--config", str(config), "--index.table", "elsewhere"])
    assert code == 2
    assert "index.table: 'elsewhere' is not what the step before writes" in capsys.readouterr().err
