"""Tables that Ray Data writes are those of the encode job, and a killed write is resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from deltalake import DeltaTable

from lsr_prod.config import Deployment
from lsr_prod.encoding import EncodeSummary, encode_corpus, table_digest
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.tables.quarantine_rows import quarantined_by_reason
from lsr_prod.errors import ConfigError, QuarantineOverflowError, StorageError
from lsr_prod.jobs.command import main
from lsr_prod.ray_data import SparseEncode, TableWrite, read_sparse_table, write_sparse_table
from lsr_prod.ray_data.staging import DatasetWrite, StagedKeys
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from tests.ray_data.driver import dataset, write

pytestmark = [pytest.mark.usefixtures("ray_local"), pytest.mark.long]

ROWS: list[dict[str, Any]] = [
    {"_id": f"{'late' if i >= 60 else 'd'}{i}", "title": f"animal {i}", "text": f"the quick brown fox {i}", "year": i}
    for i in range(100)
]
BAD: list[dict[str, Any]] = [
    {"_id": "blank", "title": "", "text": " ", "year": 1},
    {"_id": None, "title": "", "text": "no id", "year": 1},
    {"_id": "d3", "title": "impostor", "text": "another text", "year": 1},
]


def settings(bundle: Path, folder: Path, table: str, **encode: Any) -> dict[str, Any]:
    source = {"paths": [str(folder / "corpus.jsonl")], "stored_fields": ["title", "year"], "types": {"year": "int64"}}
    common = {"bundle": str(bundle), "table": str(folder / table), "actors": 1, "buckets": 4, "impact_step": 0.03}
    return {"source": source, "encode": common | {"max_bad_fraction": 0.5} | encode}


def deployment(bundle: Path, folder: Path, table: str, **encode: Any) -> Deployment:
    return Deployment.model_validate(settings(bundle, folder, table, **encode))


def save(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(table: Path, *without: str) -> list[dict[str, Any]]:
    rows = DeltaTable(table).to_pyarrow_table().drop_columns(list(without)).to_pylist()
    return sorted(rows, key=lambda row: row["doc_id"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a corpus with bad rows, of the table ``job`` of the encode job, and of the table ``data``."""
    folder = tmp_path_factory.mktemp("written")
    save(folder, [*ROWS, *BAD[:2]])
    return folder


@pytest.fixture(scope="module")
def job(folder: Path, tiny_bundle: Path, ray_local: None) -> EncodeSummary:
    return encode_corpus(deployment(tiny_bundle, folder, "job"))


@pytest.fixture(scope="module")
def written(folder: Path, tiny_bundle: Path, ray_local: None) -> TableWrite:
    return write(deployment(tiny_bundle, folder, "data"), [*ROWS, *BAD[:2], *ROWS[:5]])


def test_table_and_quarantine_equal_those_of_the_encode_job(
    folder: Path, job: EncodeSummary, written: TableWrite
) -> None:
    assert written.table_digest == job.table_digest == table_digest(str(folder / "data"), verify=True)
    assert rows_of(folder / "data", "source_file") == rows_of(folder / "job", "source_file")
    assert written.quarantined_by_reason == job.quarantined_by_reason == {"empty_text": 1, "missing_id": 1}
    quarantine = Store(str(folder / "data_quarantine"))
    assert dict(quarantined_by_reason(quarantine, written.plan, 1)[0]) == written.quarantined_by_reason
    assert (written.documents, written.repeated) == (100, 5)
    assert not [name for name in Store(str(folder / "data")).names() if "staged" in name]


@pytest.mark.usefixtures("written")
def test_index_job_accepts_the_table(folder: Path, tmp_path: Path, tiny_bundle: Path) -> None:
    folders = {
        "table": folder / "data",
        "bundle": tiny_bundle,
        "output": tmp_path / "index",
        "text_fields": '["title"]',
    }
    assert main(["index", "build", *(f"--index.{name}={place}" for name, place in folders.items())]) == 0
    with Searcher.open(tmp_path / "index") as searcher:
        assert searcher.search("fox 7", k=1).hits


@pytest.mark.usefixtures("written")
def test_dataset_of_a_table_has_its_rows(folder: Path) -> None:
    found = sorted(read_sparse_table(str(folder / "data")).take_all(), key=lambda row: row["doc_id"])
    assert found == rows_of(folder / "data", "source_file", "content_key")


def test_killed_write_is_resumed_without_encoding_again(tmp_path: Path, tiny_bundle: Path, job: EncodeSummary) -> None:
    save(tmp_path, ROWS)
    given, gate = settings(tiny_bundle, tmp_path, "data"), tmp_path / "gate"
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "tests.ray_data.driver", json.dumps(given | {"ray": {"address": address}})]
    process = subprocess.Popen([*command, str(gate)], env=os.environ | {"RAY_DEDUP_LOGS": "0"})
    prepared = DatasetWrite.prepare(Deployment.model_validate(given))
    try:
        while len(prepared.staged()) < 3:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = {entry.name for entry in prepared.staged()}
    staged = prepared.read(before)
    assert prepared.finished() is None
    assert 0 < staged.num_rows < 100
    assert not StagedKeys(prepared).missing(staged["doc_id"].to_pylist(), staged["content_hash"].to_pylist()).any()
    done = write(Deployment.model_validate(given), ROWS)
    assert done.table_digest == job.table_digest
    assert (done.documents, done.repeated) == (100, 0)


def test_finished_write_is_not_repeated_and_another_corpus_needs_another_table(
    tmp_path: Path, tiny_bundle: Path
) -> None:
    first = write(deployment(tiny_bundle, tmp_path, "data"), ROWS[:20] + BAD)
    again = write_sparse_table(dataset([{"wrong": 1}]), deployment(tiny_bundle, tmp_path, "data", actors=2))
    assert first.written
    assert not again.written
    assert (again.table_digest, again.quarantined_by_reason) == (first.table_digest, first.quarantined_by_reason)
    assert first.quarantined_by_reason == {"duplicate_id": 1, "empty_text": 1, "missing_id": 1}
    other = deployment(tiny_bundle, tmp_path, "data", store_k=16)
    with pytest.raises(ConfigError, match=r"encode\.table: .* is a table of other vectors or settings"):
        write_sparse_table(dataset(ROWS), other)


def test_too_many_bad_rows_are_not_committed_until_the_limit_allows_them(tmp_path: Path, tiny_bundle: Path) -> None:
    with pytest.raises(QuarantineOverflowError, match=r"3 of 23 rows are bad \(.*nothing was committed"):
        write(deployment(tiny_bundle, tmp_path, "data", max_bad_fraction=0.1), ROWS[:20] + BAD)
    raised = deployment(tiny_bundle, tmp_path, "data")
    assert DatasetWrite.prepare(raised).finished() is None  # its table exists, fenced and empty
    done = write(raised, ROWS[:20] + BAD)
    assert (done.written, done.documents, sum(done.quarantined_by_reason.values())) == (True, 20, 3)


def test_write_that_lost_staged_rows_fails(tmp_path: Path, tiny_bundle: Path) -> None:
    given = deployment(tiny_bundle, tmp_path, "data", max_bad_fraction=0.1)
    with pytest.raises(QuarantineOverflowError, match=r"delete \S+ and take SparseEncode.options again"):
        write(given, ROWS[:20] + BAD)
    options = SparseEncode.options(given)
    shutil.rmtree(tmp_path / "data" / DatasetWrite.prepare(given).folder)
    with pytest.raises(StorageError, match="has lost staged documents"):
        write_sparse_table(dataset(ROWS[:20]).map_batches(SparseEncode, **options), given)
    assert write(given, ROWS[:20]).documents == 20


def test_write_that_another_run_finished_returns_its_result(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = deployment(tiny_bundle, tmp_path, "data", max_bad_fraction=0.2)
    others = [given]

    def take(*arguments: Any) -> Any:
        if others:
            write(others.pop(), ROWS[:20] + BAD)
        return take_epoch(*arguments)

    monkeypatch.setattr("lsr_prod.ray_data.write.take_epoch", take)
    done = write(given, BAD[2:])
    assert (done.written, done.documents) == (False, 20)
    assert done.quarantined_by_reason == {"duplicate_id": 1, "empty_text": 1, "missing_id": 1}


def test_dataset_without_a_document_makes_an_empty_table(tmp_path: Path, tiny_bundle: Path) -> None:
    done = write(deployment(tiny_bundle, tmp_path, "data", impact_step=None, max_bad_fraction=1), BAD[:1])
    assert done.documents == 0
    assert read_sparse_table(str(tmp_path / "data")).count() == 0
