"""The job: files of other tools become a table that the index job accepts, and back."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder
from tokenizers import Tokenizer

from lsr_prod.config import Deployment, IndexSettings
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.encoding import table_digest
from lsr_prod.encoding.tables import read_all_rows
from lsr_prod.indexing.base_shard import read_buckets
from lsr_prod.indexing.index_plan import plan_index
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod_contrib.vectors import write_jsonl
from lsr_prod_contrib.vectors.command import vectors as vectors_command
from lsr_prod_contrib.vectors.job import _plan
from tests.contrib.vectors.conftest import TERMS
from tests.encoding.tables.deletions import delete_ids
from tests.indexing.corpus import STEP, Doc, make_bundle, make_index

CORPUS = {f"doc {i}": {term: 1 + (7 * i * j) % 255 for j, term in enumerate(TERMS[i % 5 : i % 13])} for i in range(80)}


def run(folder: Path, capsys, **vectors) -> tuple[int, dict, str]:
    """Return exit code, values of the RESULT line, and stderr without the log."""
    config = folder / "deployment.yaml"
    config.write_text(yaml.safe_dump({"vectors": vectors}))
    code = vectors_command.run(["--config", str(config)])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    errors = [line for line in captured.err.splitlines() if not line.startswith('{"time"')]
    return code, json.loads(lines[-1].removeprefix("RESULT ")) if lines else {}, "\n".join(errors)


@pytest.fixture
def given(bundle, tmp_path):
    """Settings of an import of impacts; the files have the corpus and four bad lines."""
    folder = tmp_path / "vectors"
    documents = [(doc_id, vector, f"text of {doc_id}") for doc_id, vector in CORPUS.items()]
    write_jsonl(folder / "a.jsonl", documents[:30])
    with (folder / "a.jsonl").open("ab") as file:
        file.write(b'{"id": "x", "vector": {"lock": -1}}\n{"id": "y", "vector": {"nowhere": 1}}\n{"id": "doc 3"\n')
    write_jsonl(folder / "b.jsonl.gz", [*documents[30:], ("doc 3", {"lock": 1}, None)])
    return {
        "action": "import",
        "table": str(tmp_path / "table"),
        "bundle": str(bundle),
        "paths": [str(folder)],
        "quantized": True,
        "impact_step": STEP,
        "buckets": 4,
    }


def test_imported_impacts_score_exactly_like_brute_force(given, bundle, tmp_path, capsys):
    code, result, errors = run(tmp_path, capsys, **given)
    assert (code, errors) == (0, "")
    index = IndexSettings(
        table=given["table"], bundle=str(bundle), output=str(tmp_path / "index"), shards=2, text_fields=["text"]
    )
    plan = plan_index(Deployment(index=index))  # the first check of the index job
    rows = [row for shard in plan.shards for table in read_buckets(shard) for row in table.to_pylist()]
    corpus = {row["doc_id"]: Doc(dict(zip(row["terms"], row["impacts"], strict=True)), row["text"]) for row in rows}
    make_index(tmp_path / "index", corpus, bundle=bundle, shards=2)
    searcher = Searcher.open(tmp_path / "index")
    for query in ({"lock": 1, "数据": 3}, {"Ω": 2.0}, dict.fromkeys(TERMS, 1.0), {"naïve": 0.25, '"': 7}):
        scores = {
            doc_id: STEP * sum(query[term] * impact for term, impact in vector.items() if term in query)
            for doc_id, vector in CORPUS.items()
            if query.keys() & vector.keys()
        }
        hits = searcher.search_vector(query, k=100).hits
        assert {hit.doc_id: hit.score for hit in hits} == scores
        assert [hit.score for hit in hits] == sorted(scores.values(), reverse=True)
    assert (result["documents"], result["quarantined"], result["rows_in"]) == (80, 4, 84)


def test_bad_lines_are_counted_and_quarantined(given, tmp_path, capsys):
    code, result, _ = run(tmp_path, capsys, **given)
    wanted = {"bad_weight": 1, "broken_json": 1, "duplicate_id": 1, "unknown_term": 1}
    assert (code, result["quarantined_by_reason"]) == (0, wanted)
    path = tmp_path / "table_quarantine"
    assert result["quarantine"] == str(path)
    lines = pq.read_table(path).to_pylist()
    assert {line["reason"]: line["doc_id"] for line in lines} == {
        "bad_weight": "x", "unknown_term": "y", "broken_json": None, "duplicate_id": "doc 3",
    }  # fmt: skip


def test_finished_import_is_not_repeated(given, tmp_path, capsys):
    assert run(tmp_path, capsys, **given)[1]["imported"] is True
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".yaml"}
    code, result, _ = run(tmp_path, capsys, **given)
    assert (code, result["imported"], result["documents"]) == (0, False, 80)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".yaml"} == before
    delete_ids(Store(str(tmp_path / "table")), ["doc 5"])
    assert run(tmp_path, capsys, **given)[1]["documents"] == 79
    code, _, errors = run(tmp_path, capsys, **{**given, "impact_step": 0.5})
    assert code == 2
    assert "vectors.table" in errors
    assert "other vectors or settings" in errors


@pytest.mark.parametrize("output", ["out.jsonl", "out.jsonl.gz", "out.npz", "out.ciff", "out.ciff.gz"])
def test_imported_export_gives_the_same_table(given, tmp_path, capsys, output):
    run(tmp_path, capsys, **given)
    vector_format = output.split(".")[1]
    export = {"action": "export", "table": given["table"], "bundle": given["bundle"], "format": vector_format}
    code, result, errors = run(tmp_path, capsys, **export, output=str(tmp_path / output))
    assert (code, errors, result["documents"]) == (0, "", 80)
    again = {**given, "table": str(tmp_path / "again"), "paths": [str(tmp_path / output)], "format": vector_format}
    code, result, errors = run(tmp_path, capsys, **again)
    assert (code, errors, result["documents"], result["quarantined"]) == (0, "", 80, 0)
    if vector_format == "jsonl":  # a matrix has no contents; their hash is part of the digest
        assert table_digest(given["table"]) == table_digest(str(tmp_path / "again"))
    code, _, errors = run(tmp_path, capsys, **export, output=str(tmp_path / output))
    assert code == 2
    assert "vectors.output" in errors


def rows_of(folder: str, *names: str) -> list[tuple]:
    """Return the rows of Parquet files in folders with values, by id."""
    table = ds.dataset(folder, partitioning=ds.partitioning(flavor="hive")).to_table()
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("weights", ["impacts", "floats"])
@pytest.mark.parametrize("place", ["local", "s3"])
def test_export_as_parquet_has_the_live_rows_of_the_table(request, given, tmp_path, capsys, place, weights):
    run(tmp_path, capsys, **given)
    delete_ids(Store(given["table"]), ["doc 5"])
    options = request.getfixturevalue("s3_options") if place == "s3" else {}
    output = f"s3://lsr/{tmp_path.name}" if options else str(tmp_path / "out")
    export = {name: given[name] for name in ("table", "bundle")} | {"action": "export", "format": "parquet"}
    config = tmp_path / "export.yaml"
    document = {"vectors": {**export, "output": output, "weights": weights}, "storage": {"options": options}}
    config.write_text(yaml.safe_dump(document))
    assert vectors_command.run(["--config", str(config)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    store, copy = Store(output, options), tmp_path / "copy"
    assert result["bytes"] == sum(entry.size for entry in store.entries())
    for name in store.names():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(store.get(name) or b"")
    assert {name.partition("/")[0] for name in store.names()} == {"_SUCCESS", *(f"bucket={n}" for n in range(4))}
    table = DeltaTable(given["table"])
    plain = ("doc_id", "bucket", "terms", "content_hash", "content_key", "source_file", "text")
    query = QueryBuilder().register("t", table).execute(f"select {', '.join(plain)}, impacts from t")
    wanted = pa.table(query.read_all())
    rows = sorted(zip(*(wanted[name].to_pylist() for name in plain), strict=True))
    assert rows_of(str(copy), *plain) == rows
    assert result["documents"] == len(rows) == 79
    found = dict(rows_of(str(copy), "doc_id", "impacts" if weights == "impacts" else "weights"))
    unit = 1 if weights == "impacts" else STEP
    stored = zip(wanted["doc_id"].to_pylist(), wanted["impacts"].to_pylist(), strict=True)
    assert found == {doc_id: [impact * unit for impact in impacts] for doc_id, impacts in stored}


def test_export_as_parquet_is_partitioned_as_asked(given, tmp_path, capsys):
    write_jsonl(tmp_path / "vectors" / "c.jsonl", [("u", {"lock": 1}, "a/b=c%"), ("v", {"lock": 1}, None)])
    given |= {"contents": "kind"}
    run(tmp_path, capsys, **given)
    export = {name: given[name] for name in ("table", "bundle")} | {"action": "export", "format": "parquet"}
    plain, both = tmp_path / "plain", tmp_path / "both"
    assert run(tmp_path, capsys, **export, output=str(plain), partition_by=[])[0] == 0
    assert not any(path.is_dir() for path in plain.iterdir())
    code, result, _ = run(tmp_path, capsys, **export, output=str(both), partition_by=["kind", "bucket"])
    assert (code, result["documents"]) == (0, 82)
    assert [path.name for path in both.glob("kind=__HIVE_DEFAULT_PARTITION__/bucket=*/*")] != []
    assert [path.parts[-3] for path in both.rglob("part-*") if "%2F" in str(path)] == ["kind=a%2Fb%3Dc%25"]
    names = ("doc_id", "bucket", "terms")
    assert rows_of(str(both), *names) == rows_of(str(plain), *names)
    assert dict(rows_of(str(both), "doc_id", "kind"))["u"] == "a/b=c%"
    code, _, errors = run(tmp_path, capsys, **export, output=str(both))
    assert (code, "vectors.output" in errors) == (2, True)
    for columns in (["terms"], ["kind", "kind"]):
        code, _, errors = run(tmp_path, capsys, **export, output=str(tmp_path / "no"), partition_by=columns)
        assert (code, "vectors.partition_by" in errors) == (2, True)


def test_topics_are_imported_as_vectors(given, tmp_path, capsys):
    (tmp_path / "topics.tsv").write_text("1\tlock lock lock 数据\n2\t\n")
    code, result, _ = run(tmp_path, capsys, **{**given, "format": "tsv", "paths": [str(tmp_path / "topics.tsv")]})
    assert (code, result["documents"], result["postings"]) == (0, 2, 2)


def test_unknown_terms_are_dropped_and_counted_on_request(given, tmp_path, capsys):
    code, result, _ = run(tmp_path, capsys, **{**given, "unknown_terms": "drop"})
    assert (code, result["documents"], result["unknown_terms_dropped"]) == (0, 81, 1)


@pytest.mark.parametrize("field", ["unknown_terms", "bad_weights"])
def test_refused_reason_fails_the_job_with_nothing_written(given, tmp_path, capsys, field):
    code, _, errors = run(tmp_path, capsys, **{**given, field: "refuse"})
    assert code == 1
    assert "nothing was written" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deployment.yaml", "vectors"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bundle": "nowhere"}, "vectors.bundle"),
        ({"paths": []}, "vectors.paths"),
        ({"paths": ["nowhere"]}, "vectors.paths"),
        ({"impact_step": None}, "vectors.quantized"),
        ({"impact_bits": 7}, "vectors.impact_bits"),
        ({"contents": "terms"}, "vectors.contents"),
        ({"quarantine": __file__}, "vectors.quarantine"),
        ({"action": "export"}, "vectors.output"),
        ({"action": "export", "output": "a.csv"}, "vectors.output"),
        ({"action": "export", "output": "a.jsonl"}, "vectors.table"),
        ({"action": "export", "format": "tsv", "output": "a.tsv"}, "vectors.format"),
        ({"format": "parquet"}, "vectors.format"),
        ({"action": "export", "format": "parquet"}, "vectors.output"),
        ({"action": "move"}, "vectors.action"),
    ],
)
def test_wrong_setting_is_one_error_line_with_nothing_written(given, tmp_path, capsys, changes, field):
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = run(tmp_path, capsys, **{**given, **changes})
    assert code == 2
    assert field in errors
    assert len(errors.splitlines()) == 1
    assert [path for path in sorted(tmp_path.rglob("*")) if path.suffix != ".yaml"] == before


def test_folder_that_is_not_a_table_is_rejected(given, tmp_path, capsys):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "thesis.tex").write_text("mine")
    code, _, errors = run(tmp_path, capsys, **given)
    assert code == 2
    assert "thesis.tex" in errors


def test_import_into_object_store_writes_quarantine_next_to_table(given, tmp_path, capsys, s3_options):
    (tmp_path / "s3.yaml").write_text("")
    table = {**given, "table": "s3://lsr/imported"}
    config = tmp_path / "deployment.yaml"
    config.write_text(yaml.safe_dump({"vectors": table, "storage": {"options": s3_options}}))
    assert vectors_command.run(["--config", str(config)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["documents"], result["table"]) == (80, "s3://lsr/imported")
    quarantine = Store("s3://lsr/imported_quarantine", s3_options)
    assert sum(read_all_rows(quarantine, name).num_rows for name in quarantine.names()) == 4


def test_one_wild_weight_is_refused_before_a_table_is_written(given, tmp_path, capsys):
    given |= {"quantized": False, "impact_step": None}
    write_jsonl(tmp_path / "vectors" / "c.jsonl", [("wild", {"lock": 1e6}, None)])
    code, _, errors = run(tmp_path, capsys, **given)
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "above vectors.max_impact_error=0.2" in errors
    assert "the largest weight is 1e+06, in document wild" in errors
    assert not (tmp_path / "table").exists()
    assert run(tmp_path, capsys, **given, max_impact_error=None)[0] == 0


def test_real_query_vectors_of_anserini_are_imported_completely(splade_tiny, shared_data, tmp_path, capsys):
    path = shared_data / "splade_queries" / "dl19-passage.splade-v3.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    tokenizer = Tokenizer.from_file(str(splade_tiny / "tokenizer.json"))
    terms = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    make_bundle(tmp_path / "bundle", terms)
    given = {"table": str(tmp_path / "table"), "bundle": str(tmp_path / "bundle")}
    code, result, errors = run(
        tmp_path, capsys, action="import", paths=[str(path)], impact_bits=16, impact_step=1.0, **given
    )
    assert (code, errors, result["quarantined"], result["impact_error"]) == (0, "", 0, 0.0)
    out = tmp_path / "out.jsonl.gz"
    code, again, errors = run(tmp_path, capsys, action="export", output=str(out), **given)
    assert (code, errors, again["documents"], again["postings"]) == (0, "", result["documents"], result["postings"])
    assert np.array_equal(*(sorted(_vectors(one)) for one in (path, out)))


def _vectors(path: Path) -> list[str]:
    import gzip

    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [json.dumps([row["id"], sorted(row["vector"].items())]) for row in rows]


def test_plan_digest_of_an_import_is_unchanged():
    settings = VectorsSettings(action="import", paths=["a.jsonl"], bundle="b", table="t")
    plan = _plan(settings, cast("Any", SimpleNamespace(bundle_digest="0" * 64)), [], [])
    assert plan == "a5cfcdf656773542d76304d03430916fe5ca3f115633cf9fa406957c2637798f"
