import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from deltalake import write_deltalake

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.encoding.tables import read_all_rows
from lsr_prod.errors import ConfigError, QuarantineOverflowError
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.training.data import prepare
from lsr_prod.training.data.layouts import PackedLayout
from lsr_prod.training.data.prepare import TrainingSetSummary, prepare_training_set
from lsr_prod.training.data.training_set import TrainingSet
from tests.quick import first_quick

pytestmark = pytest.mark.usefixtures("ray_local")


def run(
    work: Store,
    model: Path,
    *,
    needs_negative: bool = False,
    options: dict | None = None,
    layout: PackedLayout | None = None,
    **data: Any,
) -> TrainingSetSummary:
    return prepare_training_set(
        TrainingDataSettings(**data),
        model=model,
        query_max_length=16,
        document_max_length=32,
        store=work,
        options=options or {},
        needs_negative=needs_negative,
        layout=layout,
    )


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def pairs(count: int, first: int = 0) -> list[dict[str, str]]:
    return [{"query": f"query {i} of many", "positive": f"text {i} {'word ' * (i % 40)}"} for i in range(first, count)]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_rows(found: TrainingSet, rows: list[dict[str, Any]], model: Path) -> None:
    encoder = SparseEncoder.load(model, query_max_length=16, document_max_length=32)
    queries = encoder._token_ids([row["query"] for row in rows], "query")
    positives = encoder._token_ids([row["positive"] for row in rows], "document")
    assert found.rows == len(rows)
    for example, query, positive in zip(found.examples(np.arange(len(rows))), queries, positives, strict=True):
        assert example.query.tolist() == query
        assert [text.tolist() for text in example.documents] == [positive]
        assert example.scores is None


@pytest.mark.long
def test_real_pairs_become_a_set_in_source_order(shared_data: Path, tiny_model: Path, tmp_path: Path):
    path = shared_data / "tldr_en" / "pairs.jsonl"
    work = Store(str(tmp_path / "work"))
    summary = run(work, tiny_model, paths=[str(path)], kind="pairs", columns={"positive": "pos"})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (summary.rows, summary.quarantined) == (len(rows), {})
    found = TrainingSet.open(work, summary.digest)
    encoder = SparseEncoder.load(tiny_model, query_max_length=16, document_max_length=32)
    some = np.random.default_rng(0).integers(0, len(rows), 500)
    queries = encoder._token_ids([rows[row]["query"] for row in some], "query")
    positives = encoder._token_ids([rows[row]["pos"] for row in some], "document")
    for row, example, query, positive in zip(some, found.examples(some), queries, positives, strict=True):
        assert example.query.tolist() == query
        assert [text.tolist() for text in example.documents] == [positive]
        assert found.lengths[row] == max(len(query), len(positive))


BAD: list[tuple[str, dict[str, Any]]] = [
    ("empty_query", {"query": " ", "documents": ["p", "n"], "scores": [2.0, 1.0]}),
    ("empty_text", {"query": "q", "documents": ["p", ""], "scores": [2.0, 1.0]}),
    ("positive_equals_negative", {"query": "q", "documents": ["p", "p"], "scores": [2.0, 1.0]}),
    ("nan_score", {"query": "q", "documents": ["p", "n"], "scores": [2.0, float("nan")]}),
    ("wrong_score_count", {"query": "q", "documents": ["p", "n"], "scores": [2.0]}),
    ("missing_field", {"query": None, "documents": ["p", "n"], "scores": [2.0, 1.0]}),
    ("text_too_long", {"query": "q", "documents": ["p", "n" * 101], "scores": [2.0, 1.0]}),
    ("no_negative", {"query": "q", "documents": ["p"], "scores": [2.0]}),
]
GOOD = [{"query": f"q{i}", "documents": [f"p{i}", f"n{i}", "m"], "scores": [i + 0.5, 1.0, -1.0]} for i in range(30)]
MIXED = [*GOOD[:10], *(row for _, row in BAD), *GOOD[10:]]


def write_mixed(folder: Path, form: str) -> Path:
    if form == "jsonl":
        write_jsonl(folder / "m.jsonl", MIXED)
        return folder / "m.jsonl"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(MIXED), folder / "m.parquet", row_group_size=7)
        return folder / "m.parquet"
    write_deltalake(folder / "delta", pa.Table.from_pylist(MIXED))
    return folder / "delta"


@pytest.mark.parametrize("form", first_quick(["jsonl", "parquet", "delta"]))
def test_bad_rows_are_quarantined_and_counted(form: str, tiny_model: Path, tmp_path: Path):
    path = write_mixed(tmp_path, form)
    work = Store(str(tmp_path / "work"))
    settings = {"kind": "scores", "max_text_bytes": 100, "max_bad_fraction": 0.3}
    summary = run(work, tiny_model, needs_negative=True, paths=[str(path)], **settings)
    assert summary.rows == 30
    counted = {reason: 1 for reason, _ in BAD if reason != "missing_field"} | {"missing_field: query": 1}
    assert summary.quarantined == dict(sorted(counted.items()))
    lines = pq.read_table(summary.quarantine).to_pylist()
    assert [line["reason"] for line in lines] == [reason for reason, _ in BAD]
    for line, (_, row) in zip(lines, BAD, strict=True):
        assert line["source"].startswith(str(path))
        assert line["raw"]
        assert line["detail"]
        if form == "jsonl":
            with path.open("rb") as file:
                file.seek(line["position"])
                assert file.readline().decode().rstrip("\n") == line["raw"] == json.dumps(row)
        else:
            assert line["position"] == 10 + lines.index(line)
    found = TrainingSet.open(work, summary.digest)
    encoder = SparseEncoder.load(tiny_model)
    for row, example in zip(GOOD, found.examples(np.arange(30)), strict=True):
        assert [text.tolist() for text in example.documents] == encoder._token_ids(row["documents"], "document")
        assert example.scores is not None
        assert example.scores.dtype == np.float32
        assert example.scores.tolist() == row["scores"]


def test_lines_without_a_row_are_quarantined(tiny_model: Path, tmp_path: Path):
    lines = [json.dumps(row).encode() for row in pairs(40)]
    lines[20:20] = [
        b'{"query": ',
        b"[]",
        b"\xff\xfe",
        b'{"query": "\\ud800", "positive": "p"}',
        b'{"query": 3, "positive": "p"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    work = Store(str(tmp_path / "work"))
    summary = run(work, tiny_model, paths=[str(tmp_path / "a.jsonl")], kind="pairs", max_bad_fraction=0.2)
    whole_lines = {"broken_json": 1, "invalid_utf8": 1, "not_an_object": 1}
    assert summary.quarantined == {**whole_lines, "invalid_utf8: query": 1, "wrong_type: query": 1}
    assert_rows(TrainingSet.open(work, summary.digest), pairs(40), tiny_model)


def test_too_many_bad_rows_fail_and_a_higher_limit_resumes(tiny_model: Path, tmp_path: Path):
    path = write_mixed(tmp_path, "jsonl")
    work = Store(str(tmp_path / "work"))
    settings = {"paths": [str(path)], "kind": "scores", "max_text_bytes": 100}
    with pytest.raises(
        QuarantineOverflowError, match=r"8 of 38 rows are bad \(empty_query 1, .*max_bad_fraction is 0.05"
    ):
        run(work, tiny_model, needs_negative=True, **settings)
    before = files_of(tmp_path / "work")
    assert not list((tmp_path / "work" / "sets").glob("*.json"))
    summary = run(work, tiny_model, needs_negative=True, max_bad_fraction=0.22, **settings)
    assert TrainingSet.open(work, summary.digest).rows == 30
    after = files_of(tmp_path / "work")
    assert {name: after[name] for name in before} == before
    with pytest.raises(QuarantineOverflowError):  # an existing set does not bypass the limit
        run(work, tiny_model, needs_negative=True, **settings)


@pytest.mark.parametrize(("bad", "words", "limit"), [(4, 1, 0.05), (50, 60, 0.5)])
def test_packed_texts_count_as_the_texts_that_they_were(
    bad: int, words: int, limit: float, tiny_model: Path, tmp_path: Path
):
    rows = [{"text": "word " * words}] * 96 + [{"text": ""}] * bad
    write_jsonl(tmp_path / "a.jsonl", rows)
    asked = {"paths": [str(tmp_path / "a.jsonl")], "kind": "texts", "layout": PackedLayout(32, 102)}
    work = Store(str(tmp_path / "work"))
    assert run(work, tiny_model, max_bad_fraction=limit, **asked).quarantined == {"empty_text": bad}
    with pytest.raises(QuarantineOverflowError, match=rf"{bad} of {96 + bad} rows are bad"):
        run(work, tiny_model, max_bad_fraction=(bad - 1) / (96 + bad), **asked)


def test_file_with_another_schema_is_rejected_before_writing(tiny_model: Path, tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(5):
        pq.write_table(pa.Table.from_pylist(pairs(50)), folder / f"{number}.parquet")
    pq.write_table(pa.table({"query": ["q"], "passage": ["p"]}), folder / "3.parquet")
    work = Store(str(tmp_path / "work"))
    with pytest.raises(ConfigError, match=r"data.columns: \S*/3.parquet has no column positive"):
        run(work, tiny_model, paths=[str(folder)], kind="pairs")
    assert not (tmp_path / "work").exists()


def test_existing_set_is_reused_and_other_settings_change_the_digest(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_jsonl(tmp_path / "a.jsonl", pairs(30))
    work = Store(str(tmp_path / "work"))
    settings = {"paths": [str(tmp_path / "a.jsonl")], "kind": "pairs"}
    first = run(work, tiny_model, **settings)
    before = files_of(tmp_path / "work")
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_make_parts", lambda *_: pytest.fail("the data is read again"))
        assert run(work, tiny_model, **settings) == first
        (tmp_path / "moved").mkdir()
        moved = tmp_path / "moved" / "a.jsonl"
        moved.write_bytes((tmp_path / "a.jsonl").read_bytes())
        assert run(work, tiny_model, paths=[str(moved)], kind="pairs", max_bad_fraction=0.5).digest == first.digest
    assert files_of(tmp_path / "work") == before
    others = {
        run(work, tiny_model, **settings, max_text_bytes=999).digest,
        run(work, tiny_model, paths=settings["paths"], kind="texts", columns={"text": "positive"}).digest,
    }
    write_jsonl(tmp_path / "a.jsonl", pairs(31))
    others.add(run(work, tiny_model, **settings).digest)
    assert len(others - {first.digest}) == 3


def test_row_order_follows_files_for_any_parts(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prepare, "_PART_BYTES", 3000)
    for number, name in enumerate(["c", "a", "b"]):
        write_jsonl(tmp_path / f"{name}.jsonl", pairs(40 * (number + 1), 40 * number))
    work = Store(str(tmp_path / "work"))
    paths = [str(tmp_path / f"{name}.jsonl") for name in "cab"]
    summary = run(work, tiny_model, paths=paths, kind="pairs")
    assert len(list((tmp_path / "work" / "sets" / summary.digest).glob("part-*"))) > 5
    assert_rows(TrainingSet.open(work, summary.digest), pairs(120), tiny_model)


KILLED = """
import sys
from pathlib import Path
from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.storage import Store
from lsr_prod.encoding.tables import read_all_rows
from lsr_prod.training.data import prepare
prepare._PART_BYTES = 1500
path, model, work, address = sys.argv[1:]
with ray_session(RaySettings(address=address)):
    prepare.prepare_training_set(
        TrainingDataSettings(paths=[path], kind="pairs"), model=Path(model), query_max_length=16,
        document_max_length=32, store=Store(work), options={},
    )
"""


@pytest.mark.long
def test_killed_preparation_resumes_and_gives_the_same_set(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_jsonl(tmp_path / "a.jsonl", pairs(400))
    places = [str(tmp_path / "a.jsonl"), str(tiny_model), str(tmp_path / "killed")]
    command = [sys.executable, "-c", KILLED, *places, ray.get_runtime_context().gcs_address]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_receipts(tmp_path / "killed", 5, job)
    finally:
        job.kill()
        job.wait()
    receipts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed").rglob("*.parts/*.json")}
    assert not list((tmp_path / "killed" / "sets").glob("*.json"))  # no file of a set
    monkeypatch.setattr(prepare, "_PART_BYTES", 1500)
    settings = {"paths": [str(tmp_path / "a.jsonl")], "kind": "pairs"}
    resumed = run(Store(str(tmp_path / "killed")), tiny_model, **settings)
    whole = run(Store(str(tmp_path / "whole")), tiny_model, **settings)
    assert resumed.digest == whole.digest
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed").rglob("*.parts/*.json")}
    assert len(after) > len(receipts) >= 5
    assert {name: after[name] for name in receipts} == receipts
    # A killed task may leave a draft, which is ignored.
    drafts = {name for name in files_of(tmp_path / "killed") if name.endswith(".tmp")}
    killed = {name: data for name, data in files_of(tmp_path / "killed").items() if name not in drafts}
    assert killed == files_of(tmp_path / "whole")
    assert_rows(TrainingSet.open(Store(str(tmp_path / "killed")), resumed.digest), pairs(400), tiny_model)


def _wait_for_receipts(folder: Path, count: int, job: "subprocess.Popen[bytes]") -> None:
    for _ in range(2400):
        if len(list(folder.rglob("*.parts/*.json"))) >= count:
            return
        assert job.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    pytest.fail("no receipts came")


def test_deleted_part_is_made_again(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prepare, "_PART_BYTES", 1500)
    write_jsonl(tmp_path / "a.jsonl", pairs(60))
    work = Store(str(tmp_path / "work"))
    settings = {"paths": [str(tmp_path / "a.jsonl")], "kind": "pairs"}
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(work, tiny_model, **settings)
    parts = sorted((tmp_path / "work").rglob("part-*.arrow"))
    parts[1].unlink()
    summary = run(work, tiny_model, **settings)
    assert sorted((tmp_path / "work").rglob("part-*.arrow")) == parts
    assert_rows(TrainingSet.open(work, summary.digest), pairs(60), tiny_model)


@pytest.mark.long
def test_source_and_work_store_can_be_object_stores(
    s3_options: dict[str, str], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "_PART_BYTES", 1500)
    source = Store("s3://lsr/training/data", s3_options)
    source.put_new("a.jsonl", "".join(json.dumps(row) + "\n" for row in pairs(50)).encode())
    pq.write_table(pa.Table.from_pylist(pairs(80, 50)), tmp_path / "b.parquet")
    source.put_new("b.parquet", (tmp_path / "b.parquet").read_bytes())
    source.put_new("c.jsonl", b'{"query": "", "positive": "p"}\n')
    work = Store("s3://lsr/training/work", s3_options)
    summary = run(work, tiny_model, options=s3_options, paths=[source.uri], kind="pairs")
    assert summary.quarantined == {"empty_query": 1}
    assert_rows(TrainingSet.open(work, summary.digest), pairs(80), tiny_model)
    assert run(work, tiny_model, options=s3_options, paths=[source.uri], kind="pairs") == summary
    quarantine = Store(summary.quarantine, s3_options)
    assert read_all_rows(quarantine, *quarantine.names())["source"].to_pylist() == ["s3://lsr/training/data/c.jsonl"]


def test_plain_texts_become_a_set(tiny_model: Path, tmp_path: Path):
    write_jsonl(tmp_path / "a.jsonl", [{"body": f"text {i}"} for i in range(20)] + [{"body": ""}])
    work = Store(str(tmp_path / "work"))
    summary = run(work, tiny_model, paths=[str(tmp_path / "a.jsonl")], kind="texts", columns={"text": "body"})
    assert summary.quarantined == {"empty_text": 1}
    found = TrainingSet.open(work, summary.digest)
    assert found._record.made_from["kind"] == "texts"
    ids = SparseEncoder.load(tiny_model)._token_ids([f"text {i}" for i in range(20)], "document")
    examples = found.examples(np.arange(20))
    assert [[text.tolist() for text in example.documents] for example in examples] == [[one] for one in ids]
    assert all(len(example.query) == 0 for example in examples)
    assert found.lengths.tolist() == [len(one) for one in ids]


def test_impossible_settings_are_rejected(tiny_model: Path, tmp_path: Path):
    write_jsonl(tmp_path / "a.jsonl", pairs(3))
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    work = Store(str(tmp_path / "work"))
    with pytest.raises(ConfigError, match=r"data.kind: rows of kind pairs have no negatives"):
        run(work, tiny_model, needs_negative=True, paths=[str(tmp_path / "a.jsonl")], kind="pairs")
    with pytest.raises(ConfigError, match=r"data.version: \S*a.jsonl is not a Delta table"):
        run(work, tiny_model, paths=[str(tmp_path / "a.jsonl")], kind="pairs", version=3)
    with pytest.raises(ConfigError, match=r"data.paths: there is nothing at \S*nowhere"):
        run(work, tiny_model, paths=[str(tmp_path / "nowhere")], kind="pairs")
    with pytest.raises(ConfigError, match=r"data.paths: \S*empty.jsonl has no good row"):
        run(work, tiny_model, paths=[str(tmp_path / "empty.jsonl")], kind="pairs")
