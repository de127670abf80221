"""Leaks that are planted in finished sets are found."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod_contrib.click_sets import find_leaks
from lsr_prod_contrib.click_sets.build import build_sets
from lsr_prod_contrib.click_sets.files import PAIRS_SCHEMA, SPLITS, write_pairs, write_set
from tests.contrib.click_sets.logs import make_log, make_settings, random_rows


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    log = make_log(random_rows(11, queries=120, rows=1500))
    split = {"queries": 1, "distractors": 1}
    found = build_sets(log, make_settings(test=split, validation=split, max_cluster_share=0.8))
    for name, one in found.sets.items():
        assert len(one.queries)
        write_set(folder / name, SPLITS[name], one, log)
    assert write_pairs(folder / "train", found.training, log)
    return folder


@pytest.fixture
def folder(clean, tmp_path):
    shutil.copytree(clean, tmp_path / "copy")
    return tmp_path / "copy"


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def append(path, line):
    with path.open("a") as file:
        file.write(line + "\n")


def test_finished_sets_have_no_leak(clean):
    assert find_leaks(clean) == {}


@pytest.mark.parametrize("name", ["queries.jsonl", "removed_queries.jsonl"])
def test_query_of_a_set_in_training_is_found_in_another_spelling(folder, name):
    text = rows_of(folder / "validation" / name)[0]["text"].upper().replace(" ", "\u3000 ")
    pq.write_table(pa.table([[text], ["a"]], schema=PAIRS_SCHEMA), folder / "train" / "pairs-00001.parquet")
    assert find_leaks(folder) == {"query_in_training": 1}


def test_query_in_both_sets_or_twice_is_found(folder):
    query = rows_of(folder / "test" / "removed_queries.jsonl")[0]
    append(folder / "validation" / "removed_queries.jsonl", json.dumps(query))
    append(folder / "test" / "removed_queries.jsonl", json.dumps(query))
    assert find_leaks(folder) == {"query_in_both_sets": 1, "repeated_query": 1}


def test_positive_among_the_negatives_is_found_by_id_and_by_text(folder):
    query, document, _ = (folder / "test" / "qrels" / "test.tsv").read_text().splitlines()[1].split("\t")
    append(folder / "test" / "negatives.tsv", f"{query}\t{document}\t1.0")
    assert find_leaks(folder) == {"positive_as_negative": 1}
    row = next(row for row in rows_of(folder / "test" / "corpus.jsonl") if row["_id"] == document)
    append(folder / "test" / "corpus.jsonl", json.dumps({**row, "_id": "copy", "title": row["title"].upper()}))
    append(folder / "test" / "negatives.tsv", f"{query}\tcopy\t1.0")
    assert find_leaks(folder) == {"positive_as_negative": 2}


def test_distractor_with_the_text_of_a_positive_is_found(folder):
    _, document, _ = (folder / "test" / "qrels" / "test.tsv").read_text().splitlines()[1].split("\t")
    row = next(row for row in rows_of(folder / "test" / "corpus.jsonl") if row["_id"] == document)
    append(folder / "test" / "corpus.jsonl", json.dumps({**row, "_id": "copy"}))
    assert find_leaks(folder) == {"positive_as_distractor": 1}


def test_query_without_judgment_and_missing_document_are_found(folder):
    append(folder / "test" / "queries.jsonl", json.dumps({"_id": "new", "text": "never asked"}))
    append(folder / "test" / "negatives.tsv", "new\tnowhere\t1.0")
    assert find_leaks(folder) == {"query_without_judgment": 1, "missing_document": 1}
