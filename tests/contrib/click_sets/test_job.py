"""The job on logs of every format: accounts of rows, equal bytes, resumption, mistakes."""

import csv
import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.evaluation.collection import read_judged
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store, store_digest
from lsr_prod.storage.formats.digests import digest_folder
from tests.contrib.click_sets.logs import random_rows

SPLIT = json.dumps({"queries": 1, "distractors": 1})
OPTIONS = ["--click_set.test", SPLIT, "--click_set.validation", SPLIT, "--click_set.min_clicks", "1"]


def records(seed=11):
    rows = random_rows(seed, queries=120, rows=1500)
    return [{"query": row.query, "doc_id": row.document, "title": row.title} for row in rows]


def run(capsys, paths, output, *options):
    code = main(
        [
            "click-set",
            "--click_set.paths",
            json.dumps([str(p) for p in paths]),
            "--click_set.output",
            str(output),
            *OPTIONS,
            *options,
        ]
    )
    captured = capsys.readouterr()
    line = next((line for line in captured.out.splitlines() if line.startswith("RESULT ")), None)
    return code, json.loads(line[len("RESULT ") :]) if line else captured.err


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_tsv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def files(folder):
    return {file.path: file.sha256 for file in digest_folder(folder) if file.path != "_plan.json"}


def test_formats_and_orders_of_one_log_give_equal_bytes(tmp_path, capsys):
    rows = records()
    code, result = run(capsys, [write_jsonl(tmp_path / "log.jsonl", rows)], tmp_path / "a")
    assert code == 0
    assert result["rows"] == result["used"] == 1500
    assert result["test.low"] == result["test.middle"] == result["test.high"] > 0
    assert result["leaks"] == 0
    random.Random(3).shuffle(rows)
    assert run(capsys, [write_tsv(tmp_path / "log.tsv", rows)], tmp_path / "b")[0] == 0
    parts = tmp_path / "parts"
    parts.mkdir()
    write_parquet(parts / "1.parquet", rows[:400])
    write_parquet(parts / "0.parquet", rows[400:])
    assert run(capsys, [parts], tmp_path / "c")[0] == 0
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")
    assert run(capsys, [tmp_path / "log.tsv"], tmp_path / "d", "--click_set.seed", "1")[0] == 0
    assert files(tmp_path / "d") != files(tmp_path / "a")


def test_bad_rows_are_quarantined_and_add_up_and_a_finished_job_is_not_repeated(tmp_path, capsys):
    rows = [{**row, "clicks": "2", "position": 1} for row in records()]
    rows += [
        {**rows[0], "clicks": 0},
        {**rows[0], "position": 99},
        {**rows[0], "clicks": "x"},
        {**rows[0], "doc_id": ""},
    ]
    path = write_jsonl(tmp_path / "log.jsonl", rows)
    path.write_bytes(path.read_bytes() + b"{broken\n")
    options = [
        "--click_set.columns",
        json.dumps({"clicks": "clicks", "position": "position"}),
        "--click_set.max_position",
        "10",
    ]
    code, result = run(capsys, [path], tmp_path / "sets", *options)
    assert code == 0
    assert result["rows"] == 1505
    assert result["used"] == 1500
    assert (result["skipped.no_clicks"], result["skipped.low_position"]) == (1, 1)
    assert (result["quarantined.bad_number: clicks"], result["quarantined.missing_id: doc_id"]) == (1, 1)
    assert (result["quarantined.broken_json"], result["quarantined"]) == (1, 3)
    bad = pq.read_table(tmp_path / "sets_quarantine").to_pylist()
    assert sorted(row["reason"] for row in bad) == ["bad_number", "broken_json", "missing_id"]
    before = files(tmp_path / "sets")
    code, again = run(capsys, [path], tmp_path / "sets", *options)
    assert (code, again["reused"], again["digest"]) == (0, True, result["digest"])
    assert files(tmp_path / "sets") == before
    code, line = run(capsys, [path], tmp_path / "sets", *options, "--click_set.seed", "1")
    assert code == 2
    assert "click_set.output" in line


def test_sets_are_read_as_beir_and_pairs_as_training_rows(tmp_path, capsys):
    assert run(capsys, [write_jsonl(tmp_path / "log.jsonl", records())], tmp_path / "sets")[0] == 0
    judged = read_judged(tmp_path / "sets/test/queries.jsonl", tmp_path / "sets/test/qrels/test.tsv")
    assert len(judged.queries) == len((tmp_path / "sets/test/queries.jsonl").read_text().splitlines())
    table = pq.read_table(tmp_path / "sets/train/pairs-00000.parquet")
    assert table.column_names == ["query", "positive"]
    assert len(table) > 100


@pytest.mark.long
def test_output_in_an_object_store_has_the_bytes_of_a_folder_and_resumes(tmp_path, capsys, s3_options):
    path = write_jsonl(tmp_path / "log.jsonl", records())
    options = ["--storage.options", json.dumps(s3_options)]
    assert run(capsys, [path], tmp_path / "sets", *options)[0] == 0
    assert run(capsys, [path], "s3://lsr/clicks/sets", *options)[0] == 0
    store = Store("s3://lsr/clicks/sets", s3_options)
    names = [name for name in store.names() if name != "_plan.json"]
    assert {name: store_digest(store, name) for name in names} == files(tmp_path / "sets")
    judged = read_judged(
        "s3://lsr/clicks/sets/test/queries.jsonl", "s3://lsr/clicks/sets/test/qrels/test.tsv", s3_options
    )
    assert judged.queries
    for name in ("_manifest.json", "test/corpus.jsonl"):  # as if the job was killed while it wrote
        store.delete(name)
    code, again = run(capsys, [path], "s3://lsr/clicks/sets", *options)
    assert (code, again["reused"]) == (0, False)
    assert {name: store_digest(store, name) for name in names} == files(tmp_path / "sets")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--click_set.max_position", "3"], "click_set.columns.position"),
        (["--click_set.label_score", "rate"], "click_set.columns.impressions"),
        (["--click_set.columns", '{"title": null}'], "needs a title or a text"),
        (["--click_set.negative_ratio", "1"], "click_set.negative_ratio"),
        (["--click_set.paths", '["nowhere"]'], "click_set.paths"),
    ],
)
def test_wrong_setting_is_one_line_and_nothing_is_written(tmp_path, capsys, options, words):
    path = write_jsonl(tmp_path / "log.jsonl", records()[:10])
    code, line = run(capsys, [path], tmp_path / "sets", *options)
    assert code == 2
    assert words in line
    assert len(line.splitlines()) == 1
    assert not (tmp_path / "sets").exists()


@pytest.mark.parametrize(
    ("mark", "encoding", "words"),
    [
        ("\t", "utf-8", r"click_set\.format: the header of .* is a single column, .*; set it to tsv$"),
        (";", "utf-8", r"click_set\.format: .* is a single column, .*; write the file again with commas or tabs"),
        (",", "utf-16", r"click_set\.paths: .*; write the file again in UTF-8$"),
    ],
)
def test_error_of_a_csv_file_names_a_setting_of_the_section(tmp_path, capsys, mark, encoding, words):
    (tmp_path / "log.csv").write_text(mark.join(("query", "doc_id", "title")) + "\n", encoding=encoding)
    code, line = run(capsys, [tmp_path / "log.csv"], tmp_path / "sets")
    assert code == 2
    assert re.search(words, line.strip())
    assert "csv." not in line.replace("log.csv.", "")


def test_log_that_is_too_small_or_too_bad_is_one_line(tmp_path, capsys):
    path = write_jsonl(tmp_path / "log.jsonl", records()[:3])
    code, line = run(capsys, [path], tmp_path / "sets")
    assert code == 1
    assert "no query for the test set" in line.splitlines()[-1]
    path = write_jsonl(tmp_path / "bad.jsonl", [{"query": "a", "doc_id": "d", "name": "t"}] * 3)
    code, line = run(capsys, [path], tmp_path / "sets")
    assert code == 1
    assert "3 of 3 rows are bad (empty_text: title 3)" in line.splitlines()[-1]
    assert not (tmp_path / "sets").exists()
