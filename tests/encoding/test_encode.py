"""Encode jobs on a local Ray, verified by the contents of their tables."""

import gzip
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lsr_prod.cluster import workers
from lsr_prod.config import Deployment
from lsr_prod.corpus import read
from lsr_prod.encoding import encode_corpus, table_digest
from lsr_prod.encoding import prepare as encoding_on_nodes
from lsr_prod.encoding.run_records import read_runs, read_waves
from lsr_prod.errors import ConfigError, LineageError, QuarantineOverflowError, SourceError
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, Bundle

pytestmark = pytest.mark.usefixtures("ray_local")

DOCUMENTS = [{"_id": f"d{i}", "title": f"animal {i}", "text": f"the quick brown fox number {i}"} for i in range(60)]


def deployment(bundle: Path, table: Path, *paths: Path, source: Any = (), **encode: Any) -> Deployment:
    return Deployment.model_validate(
        {
            "source": {"paths": [str(path) for path in paths], **dict(source)},
            "encode": {"bundle": str(bundle), "table": str(table), "buckets": 4, "probe_documents": 16, **encode},
        }
    )


def write_jsonl(path: Path, documents: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def rows_of(table: Path) -> list[dict]:
    return DeltaTable(table).to_pyarrow_table().to_pylist()


def snapshot(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def test_each_defect_is_quarantined_with_its_reason_and_no_other_row_lost(tmp_path: Path, tiny_bundle: Path):
    good = [json.dumps(document).encode() for document in DOCUMENTS]
    first = tmp_path / "corpus" / "a.jsonl"
    first.parent.mkdir()
    first.write_bytes(
        b"\n".join(
            [
                *good[:30],
                b'{"_id": "torn", "text": "no end',
                b'{"_id": "blank", "text": "  "}',
                b'{"text": "nobody knows my name"}',
                json.dumps({"_id": "huge", "text": "word " * 2_000_000}).encode(),
                b'{"_id": "latin1", "text": "caf\xe9"}',
            ]
        )
    )
    again = b'{"_id": "d3", "title": "impostor", "text": "same id in another file"}'
    (first.parent / "b.jsonl").write_bytes(b"\n".join([again, *good[30:], good[59]]))
    settings = deployment(tiny_bundle, tmp_path / "table", first.parent, max_bad_fraction=0.5)
    summary = encode_corpus(settings)
    assert summary.quarantined_by_reason == {
        "broken_json": 1,
        "duplicate_id": 2,
        "empty_text": 1,
        "invalid_utf8": 1,
        "missing_id": 1,
        "text_too_long": 1,
    }
    assert (summary.rows_in, summary.rows_out, summary.quarantined) == (67, 60, 7)
    assert summary.source_bytes == sum(path.stat().st_size for path in first.parent.iterdir())
    assert summary.table_bytes == sum(path.stat().st_size for path in (tmp_path / "table").rglob("part-*.parquet"))
    assert 0 < summary.encode_seconds < summary.seconds
    assert 0 < summary.busy_share <= 1
    store = Store(str(tmp_path / "table"))
    (wave,), (run,) = read_waves(store, summary.plan), read_runs(store, summary.plan)
    assert (wave.rows_in, wave.rows_out, wave.quarantined_by_reason) == (67, 60, summary.quarantined_by_reason)
    assert (wave.encoded, wave.tokens, wave.bytes) == (summary.encoded, summary.tokens, summary.table_bytes)
    assert (run.attempt, run.summary) == (wave.attempt, summary.result())
    rows = rows_of(tmp_path / "table")
    assert sorted(row["doc_id"] for row in rows) == sorted(document["_id"] for document in DOCUMENTS)
    assert next(row["title"] for row in rows if row["doc_id"] == "d3") == "animal 3"
    for row in rows:
        assert 0 < len(row["terms"]) == len(set(row["terms"])) <= 256
        assert all(1 <= impact <= 255 for impact in row["impacts"])
        assert row["impacts"] == sorted(row["impacts"], reverse=True)
    bad = rows_of(tmp_path / "table_quarantine")
    by_reason = {row["reason"]: row for row in bad}
    assert by_reason["invalid_utf8"]["raw"] == '{"_id": "latin1", "text": "caf�"}'
    assert by_reason["text_too_long"]["doc_id"] == "huge"
    assert by_reason["text_too_long"]["source"] == str(first)
    assert len(by_reason["text_too_long"]["raw"]) == 4096


@pytest.mark.long
def test_table_digest_is_independent_of_source_format_and_waves(tmp_path: Path, tiny_bundle: Path):
    long = [{**document, "text": document["text"] + " filler" * 3000} for document in DOCUMENTS]
    text = "".join(json.dumps(document) + "\n" for document in long)
    write_jsonl(tmp_path / "beir" / "corpus.jsonl", long)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    pq.write_table(pa.Table.from_pylist(long), tmp_path / "c.parquet", row_group_size=17)
    write_deltalake(tmp_path / "delta", pa.Table.from_pylist(long))
    write_deltalake(
        tmp_path / "delta", pa.Table.from_pylist([{"_id": "later", "title": "", "text": "x"}]), mode="append"
    )
    sources = {
        "gz": ([tmp_path / "c.jsonl.gz"], {}),
        "parquet": ([tmp_path / "*.parquet"], {}),
        "delta": ([tmp_path / "delta"], {"version": 0}),
    }
    digests = {}
    for name, (paths, source) in sources.items():
        settings = deployment(tiny_bundle, tmp_path / name / "table", *paths, source=source, impact_step=0.02)
        summary = encode_corpus(settings)
        assert summary.documents == 60
        digests[name] = summary.table_digest
    cut = {"wave_megabytes": 1, "slice_megabytes": 1, "impact_step": 0.02}
    summary = encode_corpus(deployment(tiny_bundle, tmp_path / "w" / "table", tmp_path / "beir", **cut))
    assert summary.waves == 2
    digests["waves"] = summary.table_digest
    assert len(set(digests.values())) == 1, digests


def test_finished_plan_skips_all_waves_and_other_settings_are_refused(tmp_path: Path, tiny_bundle: Path):
    corpus = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)
    settings = deployment(tiny_bundle, tmp_path / "table", corpus)
    first = encode_corpus(settings)
    again = encode_corpus(settings)
    assert again.waves_skipped == again.waves == 1
    for name in ("table_digest", "table_version", "documents", "rows_in", "impact_step"):
        assert getattr(again, name) == getattr(first, name), name
    assert first.table_digest == table_digest(str(tmp_path / "table"))

    before = snapshot(tmp_path / "table")
    with pytest.raises(ConfigError, match=r"encode\.store_k"):
        encode_corpus(deployment(tiny_bundle, tmp_path / "table", corpus, store_k=8))
    other = tmp_path / "other"
    shutil.copytree(tiny_bundle, other)
    sealed = Bundle.load(other)
    (other / BUNDLE_FILE).write_bytes(replace(sealed, model_digest="0" * 64).to_bytes())
    with pytest.raises(LineageError, match="made by bundle"):
        encode_corpus(deployment(other, tmp_path / "table", corpus))
    assert snapshot(tmp_path / "table") == before


@pytest.mark.long
@pytest.mark.parametrize("bits", [4, 16])
def test_impacts_of_other_widths_are_within_half_a_step_of_the_weights(tmp_path: Path, tiny_bundle: Path, bits: int):
    corpus = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS)
    settings = deployment(tiny_bundle, tmp_path / "table", corpus, impact_bits=bits, probe_documents=60, actors=1)
    found = encode_corpus(settings)
    texts = {document["_id"]: " ".join([document["title"], document["text"]]) for document in DOCUMENTS}
    exact = BundleEncoder(tiny_bundle).encode(list(texts.values()), kind="document", top_k=256)
    step = found.impact_step
    for i, doc_id in enumerate(texts):
        (row,) = [row for row in rows_of(tmp_path / "table") if row["doc_id"] == doc_id]
        weights = dict(zip(*map(np.ndarray.tolist, exact.row(i)), strict=True))
        for term, impact in zip(row["terms"], row["impacts"], strict=True):
            # A weight below half a step still has impact 1: no term is dropped.
            assert abs(impact * step - weights[term]) <= (step / 2 if impact > 1 else step) + 1e-4
        assert set(row["terms"]) == weights.keys()


@pytest.mark.long
def test_document_beyond_its_last_passage_is_counted_as_cut(tmp_path: Path, tiny_bundle: Path):
    corpus = write_jsonl(tmp_path / "c.jsonl", [*DOCUMENTS, {"_id": "long", "title": "t", "text": "word fox " * 100}])
    lengths = {"max_length": 16, "passage_stride": 8, "max_passages": 4, "actors": 1}
    found = encode_corpus(deployment(tiny_bundle, tmp_path / "table", corpus, **lengths))
    assert (found.cut_documents, found.quarantined) == (1, 0)


@pytest.mark.long
def test_too_many_bad_rows_fail_the_job_before_the_commit_and_finished_cells_are_reused_by_more_actors(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps(DOCUMENTS[0]) + "\nno json\n{}\n")
    with pytest.raises(QuarantineOverflowError, match=r"2 of 3 rows are bad .*broken_json 1") as overflow:
        encode_corpus(deployment(tiny_bundle, tmp_path / "table", corpus, buckets=4, actors=1))
    assert "missing_id: _id 1" in str(overflow.value)
    assert "source.id_field (now _id)" in str(overflow.value)
    viewer = shlex.split(str(overflow.value).partition("see the rows with: lsr-prod ")[2].partition(";")[0])
    assert main([*viewer, "--json"]) == 0
    bad = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((row["reason"], row["state"]) for row in bad) == [
        ("broken_json", "not committed"),
        ("missing_id", "not committed"),
    ]
    assert rows_of(tmp_path / "table") == []
    summary = encode_corpus(
        deployment(tiny_bundle, tmp_path / "table", corpus, buckets=4, actors=2, max_bad_fraction=0.9)
    )
    assert (summary.documents, summary.quarantined) == (1, 2)
    assert (summary.actors, summary.reused_cells, summary.encoded) == (2, 4, 0)


@pytest.mark.long
def test_ids_of_earlier_waves_are_duplicates_in_later_waves(tmp_path: Path, tiny_bundle: Path):
    filler = " filler" * 20_000
    write_jsonl(
        tmp_path / "c" / "1.jsonl", [{**document, "text": document["text"] + filler} for document in DOCUMENTS[:8]]
    )
    write_jsonl(tmp_path / "c" / "2.jsonl", DOCUMENTS[:10])
    settings = deployment(tiny_bundle, tmp_path / "table", tmp_path / "c", wave_megabytes=1, max_bad_fraction=0.5)
    summary = encode_corpus(settings)
    assert summary.waves == 2
    assert summary.quarantined_by_reason == {"duplicate_id": 8}
    assert summary.documents == 10


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"source": {"paths": ["nowhere.jsonl"]}}, "source.paths"),
        ({"source": {"format": "delta"}}, "source.paths"),
        ({"source": {"version": 3}}, "source.version"),
        ({"source": {"stored_fields": ["doc_id"]}}, "source.stored_fields"),
        ({"encode": {"bundle": "nowhere"}}, "encode.bundle"),
        ({"encode": {"store_k": 100_000}}, "encode.store_k"),
        ({"encode": {"table": "."}}, "encode.table"),
    ],
)
def test_wrong_setting_is_named_and_nothing_is_written(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, change: dict, field: str
):
    monkeypatch.chdir(tmp_path)
    corpus = write_jsonl(tmp_path / "c.jsonl", DOCUMENTS[:2])
    values = deployment(tiny_bundle, tmp_path / "table", corpus).model_dump()
    for section, fields in change.items():
        values[section].update(fields)
    before = snapshot(tmp_path)
    with pytest.raises(ConfigError) as refused:
        encode_corpus(Deployment.model_validate(values))
    assert refused.value.field == field
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"bundle": "nowhere"}, "encode.bundle"), ({"store_k": 30_000}, "encode.store_k"), ({}, "source.paths")],
)
def test_inputs_are_checked_before_the_cluster_is_asked(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], field: str
):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # nothing listens there
    settings = deployment(tiny_bundle, tmp_path / "table", tmp_path / "nowhere")
    assert settings.encode is not None
    settings = settings.model_copy(update={"encode": settings.encode.model_copy(update=wrong)})
    with pytest.raises(ConfigError, match=rf"^{field}: "):
        encode_corpus(settings)
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_the_configured_columns_is_refused(tmp_path: Path, tiny_bundle: Path):
    pq.write_table(pa.table({"id": [1], "text": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(ConfigError, match=r"has no column _id; use one of its columns: id, text"):
        encode_corpus(deployment(tiny_bundle, tmp_path / "table", tmp_path / "c.parquet"))
    with pytest.raises(ConfigError, match=r"source\.text_fields"):
        encode_corpus(
            deployment(
                tiny_bundle,
                tmp_path / "table",
                tmp_path / "c.parquet",
                source={"id_field": "id", "text_fields": ["body"]},
            )
        )
    with pytest.raises(ConfigError, match=r"source\.stored_fields: .* has a column prise; \S*c.parquet"):
        encode_corpus(
            deployment(
                tiny_bundle,
                tmp_path / "table",
                tmp_path / "c.parquet",
                source={"id_field": "id", "stored_fields": ["text", "prise"]},
            )
        )
    assert snapshot(tmp_path) == [str(tmp_path / "c.parquet")]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("write", SourceError, r"a\.jsonl has changed since it was pinned"),
        ("source", ConfigError, r"^source\.paths: .*a\.jsonl is not on 1 of 1 nodes"),
        ("bundle", ConfigError, r"^encode\.bundle: .*tokenizer\.json is missing or differs on 1 of 1 nodes"),
    ],
)
def test_file_that_changes_or_is_missing_on_a_node_ends_the_job(
    tmp_path: Path,
    tiny_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    error: type[Exception],
    message: str,
):
    corpus = write_jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    bundle = shutil.copytree(tiny_bundle, tmp_path / "bundle") if what == "bundle" else tiny_bundle

    def act_after_planning() -> bool:
        """Change a file, and count the one node as several if it lacks a file now."""
        if what == "write":
            corpus.write_text(corpus.read_text().replace("brown", "green"))
        else:
            (corpus if what == "source" else bundle / "tokenizer.json").unlink()
        return what != "write"

    for module in (workers, read):
        monkeypatch.setattr(module, "has_several_nodes", lambda: True)
    monkeypatch.setattr(encoding_on_nodes, "has_several_nodes", act_after_planning)
    with pytest.raises(error, match=message):
        encode_corpus(deployment(bundle, tmp_path / "table", corpus))
    assert what == "write" or not (tmp_path / "table").exists()
    assert not list(tmp_path.rglob("part-*.parquet"))
