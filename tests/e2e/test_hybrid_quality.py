"""Hybrid queries rank claims better than terms alone, and on the whole collection better than words alone."""

import json
from functools import partial
from pathlib import Path

import ir_measures
import pytest

from lsr_prod.evaluation.collection import read_judged
from lsr_prod.search import Hybrid, Searcher
from tests.indexing.corpus import encode_corpus, make_index

NDCG = ir_measures.nDCG @ 10


@pytest.mark.long
@pytest.mark.parametrize(
    ("judged_queries", "distractors"), [(150, 1000), pytest.param(300, 5183, marks=pytest.mark.slow)]
)
def test_hybrid_queries_rank_better_than_terms_alone(
    judged_queries: int, distractors: int, tiny_bundle: Path, shared_data: Path, tmp_path: Path
) -> None:
    """SciFact, whose claims share words with their abstracts; the tiny encoder reads 128 tokens of each."""
    collection = shared_data / "scifact"
    judged = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    queries = dict(list(judged.queries.items())[:judged_queries])
    qrels = [row for row in judged.qrels if row.query_id in queries]
    wanted = {row.doc_id for row in qrels}
    with (collection / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    others = [row["_id"] for row in rows if row["_id"] not in wanted][:distractors]
    texts = {row["_id"]: f"{row['title']} {row['text']}" for row in rows if row["_id"] in wanted | set(others)}
    make_index(tmp_path, encode_corpus(tiny_bundle, texts), bundle=tiny_bundle, shards=2, bm25=True)
    searcher = Searcher.open(tmp_path)
    ways = {
        "terms": searcher.search,
        "words": searcher.bm25,
        "sum": partial(searcher.search, hybrid=Hybrid()),
        "rrf": partial(searcher.search, hybrid=Hybrid(fusion="rrf")),
    }
    found = {}
    for name, search in ways.items():
        answers = {i: search(text).hits for i, text in queries.items()}
        run = [ir_measures.ScoredDoc(i, hit.doc_id, hit.score) for i, hits in answers.items() for hit in hits]
        found[name] = float(ir_measures.calc_aggregate([NDCG], qrels, run)[NDCG])
    print(" ".join(f"{name} {value:.4f}" for name, value in found.items()))
    assert found["words"] > 0.66
    assert found["sum"] > found["terms"] + 0.05
    assert found["rrf"] > found["terms"] + 0.02
    if len(texts) == len(rows):
        assert found["sum"] > found["words"]
