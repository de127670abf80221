import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation import evaluate_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.index_upload import upload_current
from tests.indexing.corpus import Doc, encode_corpus, make_index

TEXTS = {
    "lock": "A lock is released by the thread that holds it.",
    "event": "An event lets one thread signal others.",
    "dumps": "Serialize a Python object to a string in JSON format.",
    "sqrt": "Return the square root of a number.",
    "gzip": "Open a compressed file for reading or writing.",
    "empty": "",
}
QUERIES = {"q1": "thread lock", "q2": "square root", "q3": "json string", "q4": " ", "unjudged": "file"}
QRELS = {"q1": {"event": 1, "lock": 2}, "q2": {"sqrt": 1, "gzip": 1}, "q3": {"gzip": 1}, "q4": {"lock": 1}}


@pytest.fixture(scope="module")
def corpus(tiny_bundle: Path) -> dict[str, Doc]:
    return encode_corpus(tiny_bundle, TEXTS)


@pytest.fixture(scope="module")
def folder(tiny_bundle: Path, corpus: dict[str, Doc], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    make_index(folder / "index", corpus, bundle=tiny_bundle, shards=2)
    lines = [json.dumps({"_id": query_id, "text": text}) for query_id, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [f"{q}\t{d}\t{gain}" for q, gains in QRELS.items() for d, gain in gains.items()]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return folder


def evaluate(folder: Path, **settings: Any) -> Any:
    paths = {name: str(folder / file) for name, file in PATHS.items()}
    return evaluate_index(Deployment.model_validate({"evaluate": {**paths, **settings}})).result()


PATHS = {"index": "index", "queries": "queries.jsonl", "qrels": "qrels.tsv"}


def by_hand(rankings: dict[str, Sequence[str]]) -> dict[str, float]:
    """Compute nDCG@3, RR@3 and R@2 by their definitions, over all judged queries."""
    totals = {"nDCG@3": 0.0, "RR@3": 0.0, "R@2": 0.0}
    for query_id, gains in QRELS.items():
        top = rankings[query_id][:3]
        found = sum(gains.get(doc_id, 0) / math.log2(i + 2) for i, doc_id in enumerate(top))
        ideal = sum(gain / math.log2(i + 2) for i, gain in enumerate(sorted(gains.values(), reverse=True)[:3]))
        totals["nDCG@3"] += found / ideal
        totals["RR@3"] += next((1 / (i + 1) for i, doc_id in enumerate(top) if doc_id in gains), 0.0)
        totals["R@2"] += len(gains.keys() & set(top[:2])) / len(gains)
    return {name: total / len(QRELS) for name, total in totals.items()}


def test_measures_equal_definitions_with_zero_for_queries_without_hits(folder: Path) -> None:
    result = evaluate(folder, measures=["nDCG@3", "RR@3", "R@2"], thresholds=[0.0, 0.3, 1.0])
    assert (result["queries"], result["documents"]) == (4, 6)
    systems = {system["name"]: system for system in result["systems"]}
    assert list(systems) == ["bm25", "threshold 0", "threshold 0.3", "threshold 1"]
    searcher = Searcher.open(folder / "index")
    for name, system in systems.items():
        rankings, matched = {}, 0
        for query_id in QRELS:
            text = QUERIES[query_id]
            if name == "bm25":
                found = searcher.bm25(text, k=1000)
            else:
                found = searcher.search(text, k=1000, overlap_threshold=float(name.split()[1]))
            rankings[query_id] = [hit.doc_id for hit in found.hits]
            matched += found.matched
        assert system["measures"] == pytest.approx(by_hand(rankings)), name
        assert system["matched"] == pytest.approx(matched / len(QRELS)), name
        assert 0 <= system["match_p50_ms"] <= system["match_p95_ms"] <= system["text_p95_ms"]
        assert rankings["q4"] == []
    assert 0 < systems["threshold 0"]["measures"]["nDCG@3"] <= 0.75


@pytest.mark.parametrize("qk", [None, 5])
def test_flops_and_l0_equal_counts_of_pairs(folder: Path, tiny_bundle: Path, corpus: dict[str, Doc], qk: int | None):
    result = evaluate(folder, thresholds=[0.0], bm25=False, qk=qk)
    texts = [QUERIES[query_id] for query_id in QRELS]
    encoded = BundleEncoder(tiny_bundle).encode(texts, kind="query", top_k=qk)
    queries = [set(encoded.row(i)[0].tolist()) for i in range(len(texts))]
    pairs = [(query, document) for query in queries for document in corpus.values()]
    assert result["flops"] == pytest.approx(sum(len(q & d.terms.keys()) for q, d in pairs) / len(pairs))
    assert result["flops"] > 0
    assert result["l0_query"] == pytest.approx(sum(map(len, queries)) / len(queries))
    assert result["l0_document"] == pytest.approx(sum(len(d.terms) for d in corpus.values()) / len(corpus))
    assert [system["name"] for system in result["systems"]] == ["threshold 0"]


def test_run_files_contain_measured_rankings(folder: Path, tmp_path: Path) -> None:
    result = evaluate(folder, measures=["RR@3"], thresholds=[0.2], k=3, runs=str(tmp_path / "runs"))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["bm25.trec", "threshold-0.2.trec"]
    run = list(ir_measures.read_trec_run(str(tmp_path / "runs" / "threshold-0.2.trec")))
    rankings = {query_id: [row.doc_id for row in run if row.query_id == query_id] for query_id in QRELS}
    assert max(map(len, rankings.values())) <= 3
    assert result["systems"][1]["measures"]["RR@3"] == pytest.approx(by_hand(rankings)["RR@3"])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"index": "nowhere"}, "evaluate.index"),
        ({"queries": "nowhere.jsonl"}, "evaluate.queries"),
        ({"qrels": "nowhere.tsv"}, "evaluate.qrels"),
        ({"measures": ["nDCG@10", "goodness"]}, "evaluate.measures"),
        ({"measures": ["nDCG@"]}, "evaluate.measures"),
        ({"measures": [""]}, "evaluate.measures"),
    ],
)
def test_invalid_setting_is_reported_and_nothing_is_written(
    folder: Path, tmp_path: Path, settings: dict, field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        evaluate(folder, **settings, runs=str(tmp_path / "runs"))
    assert refused.value.field == field
    assert not (tmp_path / "runs").exists()


def test_evaluation_by_uri_equals_that_of_folders(
    folder: Path, s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    upload_current(folder / "index", store.child("index"))
    for name in ("queries.jsonl", "qrels.tsv"):
        store.put_new(name, (folder / name).read_bytes())
    paths = {name: f"{store.uri}/{file}" for name, file in PATHS.items()}
    given = {"storage": {"options": s3_options}, "evaluate": {**paths, "runs": f"{store.uri}/runs"}}
    for _ in range(2):
        remote = evaluate_index(Deployment.model_validate(given)).result()
    local = evaluate(folder, runs=str(tmp_path / "runs"))
    for one, other in zip(remote["systems"], local["systems"], strict=True):
        assert (one["name"], one["measures"], one["matched"]) == (other["name"], other["measures"], other["matched"])
        name = f"{one['name'].replace(' ', '-')}.trec"
        assert store.get(f"runs/{name}") == (tmp_path / "runs" / name).read_bytes()
    given["evaluate"] |= {"queries": f"{store.uri}/none"}
    with pytest.raises(ConfigError, match=r"evaluate.queries: there is no file at s3://"):
        evaluate_index(Deployment.model_validate(given))
