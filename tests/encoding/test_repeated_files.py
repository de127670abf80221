"""Files that come twice: rows of a wave may equal rows that the same wave, or an earlier one, removes."""

import json
from functools import partial
from pathlib import Path

import pytest

from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.plans.successors import plan_chain
from lsr_prod.encoding.run_records import EncodeSummary
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY
from lsr_prod.storage import Store
from tests.encoding.test_given_up_plans import interrupted_run, power_failure_after_one_wave, run, write
from tests.encoding.test_incremental_encode import deployment, rows_of
from tests.quick import first_quick

pytestmark = pytest.mark.usefixtures("ray_local")

_TEXT = "and a longer text about reading files in python " * 19


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    return folder


def deliver(corpus: Path, day: str, documents: int, more: tuple[str, ...] = (), padding: str = "") -> None:
    folder = corpus / day
    folder.mkdir()
    rows = [{"_id": f"d{i}", "text": f"parse a date string {i} {_TEXT}", "padding": padding} for i in range(documents)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for doc_id in more:
        (folder / f"{doc_id}.jsonl").write_text(json.dumps({"_id": doc_id, "text": "one more"}) + "\n")


def encode(bundle: Path, table: Path, corpus: Path, **changes: object) -> EncodeSummary:
    sizes = {"wave_megabytes": 1, "slice_megabytes": 4, "cell_megabytes": 1, "buckets": 16, "max_bad_fraction": 1}
    source = {"paths": [str(corpus)], "text_fields": ["text"]}
    return encode_corpus(deployment(bundle, table, source=source, on_duplicate="last", **sizes | changes))


@pytest.mark.parametrize("padding", first_quick([8_800, 11_300]))  # a wave is several files, or one
def test_second_delivery_of_the_same_file_keeps_every_document(
    tmp_path: Path, corpus: Path, tiny_bundle: Path, padding: int
):
    deliver(corpus, "2026-11-23", 100, ("extra",), "x" * padding)
    deliver(corpus, "2026-11-24", 100, (), "x" * padding)
    done = encode(tiny_bundle, tmp_path / "table", corpus)
    assert (done.documents, done.quarantined_by_reason) == (101, {"duplicate_id": 100})
    assert len(rows_of(tmp_path / "table")) == 101
    assert encode(tiny_bundle, tmp_path / "table", corpus).documents == 101


@pytest.mark.long
@pytest.mark.parametrize("old_file_changes", [False, True])
def test_plan_abandoned_between_its_waves_loses_no_document(
    tmp_path: Path, corpus: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, old_file_changes: bool
):
    table = tmp_path / "table"
    deliver(corpus, "2026-11-23", 20, ("x1", "x2", "x3"))
    run(tiny_bundle, table, corpus)
    write(corpus, "b", 1, range(100, 110))
    interrupted_run(monkeypatch, tiny_bundle, table, corpus)
    if old_file_changes:
        (corpus / "2026-11-23" / "x1.jsonl").write_text('{"_id": "x1", "text": "changed"}')  # its part loses one row
    snapshot = open_table(Store(str(table)))
    assert snapshot is not None
    plan = plan_chain(snapshot.store, snapshot.properties[PLAN_PROPERTY], partial(waves_done, snapshot))[-1]
    done = run(tiny_bundle, table, corpus, plan)

    full = run(tiny_bundle, tmp_path / "full", corpus)
    assert done.documents == full.documents == 33
    assert rows_of(table) == rows_of(tmp_path / "full")


@pytest.mark.long
def test_new_order_of_folders_after_an_interrupted_run_decides_which_rows_are_documents(
    tmp_path: Path, corpus: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    one, two = corpus / "1", corpus / "2"
    one.mkdir()
    two.mkdir()
    write(one, "a", 0, range(4))
    write(two, "b", 1, range(2, 6))  # two ids of a: the first row is the document

    def encode_folders(table: str, *folders: Path) -> EncodeSummary:
        sizes = {"wave_megabytes": 1, "slice_megabytes": 1, "max_bad_fraction": 1}
        paths = {"paths": [str(folder) for folder in folders]}
        return encode_corpus(deployment(tiny_bundle, tmp_path / table, source=paths, **sizes))

    with power_failure_after_one_wave(monkeypatch):
        encode_folders("table", one, two)
    assert encode_folders("table", two, one).base_plan is not None
    encode_folders("full", two, one)
    assert rows_of(tmp_path / "table") == rows_of(tmp_path / "full")
