import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.evaluate import OUTPUT_FILE
from lsr_prod.inference import BundleEncoder
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.storage import Store
from tests.indexing.corpus import Doc, encode_corpus, make_index
from tests.indexing.remote import upload_current

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
    make_index(folder / "words", corpus, bundle=tiny_bundle, shards=2, bm25=True)
    lines = [json.dumps({"_id": query_id, "text": text}) for query_id, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [f"{q}\t{d}\t{gain}" for q, gains in QRELS.items() for d, gain in gains.items()]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return folder


def evaluate(folder: Path, **settings: Any) -> Any:
    paths = {name: str(folder / file) for name, file in PATHS.items()}
    return evaluate_index(Deployment.model_validate({"evaluate": {**paths, "resamples": 200, **settings}})).result()


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


def test_judgments_of_another_corpus_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 d1 1\nq2 0 d2 2\nq3 0 sqrt 0\n")
    with pytest.raises(SourceError, match=r"qrels judges as relevant is in the index, for example 'd1'; give the"):
        evaluate(folder, qrels=str(tmp_path / "qrels"))
    (tmp_path / "qrels").write_text("q1 0 sqrt 0\n")
    with pytest.raises(SourceError, match=r"qrels judges as relevant is in the index; give the judgments"):
        evaluate(folder, qrels=str(tmp_path / "qrels"))
    (tmp_path / "qrels").write_text("q1 0 d1 1\nq2 0 sqrt 2\nq3 0 d3 0\n")
    evaluate(folder, qrels=str(tmp_path / "qrels"), thresholds=[0.0])  # one of them is in the index


@pytest.mark.parametrize("qk", [None, 5])
def test_flops_and_l0_equal_counts_of_pairs(folder: Path, tiny_bundle: Path, corpus: dict[str, Doc], qk: int | None):
    result = evaluate(folder, thresholds=[0.0, 0.1234561, 0.1234562], bm25=False, qk=qk)
    texts = [QUERIES[query_id] for query_id in QRELS]
    encoded = BundleEncoder(tiny_bundle).encode(texts, kind="query", top_k=qk)
    queries = [set(encoded.row(i)[0].tolist()) for i in range(len(texts))]
    pairs = [(query, document) for query in queries for document in corpus.values()]
    assert result["flops"] == pytest.approx(sum(len(q & d.terms.keys()) for q, d in pairs) / len(pairs))
    assert result["flops"] > 0
    assert result["l0_query"] == pytest.approx(sum(map(len, queries)) / len(queries))
    assert result["l0_document"] == pytest.approx(sum(len(d.terms) for d in corpus.values()) / len(corpus))
    assert [system["name"] for system in result["systems"]] == [
        "threshold 0",
        "threshold 0.1234561",
        "threshold 0.1234562",
    ]


def test_run_files_contain_measured_rankings(folder: Path, tmp_path: Path) -> None:
    result = evaluate(folder, measures=["RR@3"], thresholds=[0.2], k=3, runs=str(tmp_path / "runs"))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["bm25.trec", "threshold-0.2.trec"]
    run = list(ir_measures.read_trec_run(str(tmp_path / "runs" / "threshold-0.2.trec")))
    rankings = {query_id: [row.doc_id for row in run if row.query_id == query_id] for query_id in QRELS}
    assert max(map(len, rankings.values())) <= 3
    assert result["systems"][1]["measures"]["RR@3"] == pytest.approx(by_hand(rankings)["RR@3"])


def test_run_with_spaces_in_ids_is_written_as_json_lines_and_read_back(
    tiny_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {f"page {doc_id}": text for doc_id, text in TEXTS.items()}
    make_index(tmp_path / "index", encode_corpus(tiny_bundle, texts), bundle=tiny_bundle)
    (tmp_path / "queries.jsonl").write_text("id,text\nq 1,thread lock\nq 2,square root\n")
    (tmp_path / "qrels.tsv").write_text("qid,docid,score\nq 1,page lock,1.0\nq 2,page sqrt,1.0\nq 2,page gzip,0.5\n")
    measures = ["recip_rank", "ndcg_cut_3"]
    first = evaluate(tmp_path, measures=measures, thresholds=[0.0], bm25=False, runs=str(tmp_path / "runs"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["threshold-0.jsonl"]
    assert "run written as JSON lines" in caplog.text
    run = {"kind": "run", "name": "run", "path": str(tmp_path / "runs" / "threshold-0.jsonl")}
    second = evaluate(tmp_path, measures=measures, systems=[run])
    assert first["systems"][0]["measures"] == second["systems"][0]["measures"]
    assert first["systems"][0]["measures"] == {"RR": 1.0, "nDCG@3": 1.0}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"index": "nowhere"}, "evaluate.index"),
        ({"queries": "nowhere.jsonl"}, "evaluate.queries"),
        ({"qrels": "nowhere.tsv"}, "evaluate.qrels"),
        ({"output": __file__}, "evaluate.output"),
        ({"runs": __file__}, "evaluate.runs"),
        ({"measures": ["nDCG@10", "goodness"]}, "evaluate.measures"),
        ({"measures": ["nDCG@"]}, "evaluate.measures"),
        ({"measures": [""]}, "evaluate.measures"),
    ],
)
def test_invalid_setting_is_reported_and_nothing_is_written(
    folder: Path, tmp_path: Path, settings: dict, field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        evaluate(folder, **{"runs": str(tmp_path / "runs"), **settings})
    assert refused.value.field == field
    assert not (tmp_path / "runs").exists()


SYSTEMS = [
    {"kind": "sparse", "name": "plain"},
    {"kind": "sparse", "name": "two terms", "min_terms": 2, "qk": 9},
    {"kind": "sparse", "name": "a third of the weight", "weight_threshold": 0.33},
    {"kind": "two-step", "name": "two-step", "qk": 3, "rescore": 4},
    {"kind": "hybrid", "words": 0.5},
    {"kind": "hybrid", "name": "rrf", "fusion": "rrf", "qk": 9},
    {"kind": "bm25"},
    {"kind": "run", "name": "other", "path": "other.trec"},
]


@pytest.fixture(scope="module")
def mixed(folder: Path) -> dict:
    """Systems of every kind in one table."""
    (folder / "other.trec").write_text("q1 Q0 lock 1 2.0 x\nq1 Q0 event 2 1.5 x\nq3 Q0 dumps 1 1 x\nq9 Q0 a 1 1 x\n")
    systems = [{**one, "path": str(folder / one["path"])} if "path" in one else one for one in SYSTEMS]
    settings = {"index": str(folder / "words"), "measures": ["RR@3", "nDCG@3"], "k": 4, "output": str(folder / "out")}
    return evaluate(folder, systems=systems, **settings)


def test_systems_of_every_kind_rank_as_the_searcher_does(folder: Path, mixed: dict) -> None:
    searcher = Searcher.open(folder / "words")
    searches = {
        "plain": lambda text: searcher.search(text, 4),
        "two terms": lambda text: searcher.search(text, 4, min_terms=2, qk=9),
        "two-step": lambda text: searcher.search(text, 4, qk=3, rescore=4),
        "hybrid": lambda text: searcher.search(text, 4, hybrid=Hybrid(words=0.5)),
        "rrf": lambda text: searcher.search(text, 4, qk=9, hybrid=Hybrid(fusion="rrf", depth=4)),
        "bm25": lambda text: searcher.bm25(text, 4),
    }
    systems = {system["name"]: system for system in mixed["systems"]}
    assert [(one["kind"], one["name"]) for one in mixed["systems"]] == [
        (one["kind"], one.get("name", one["kind"])) for one in SYSTEMS
    ]
    for name, search in searches.items():
        rankings = {query_id: [hit.doc_id for hit in search(QUERIES[query_id]).hits] for query_id in QRELS}
        expected = by_hand(rankings)
        assert systems[name]["measures"] == pytest.approx({m: expected[m] for m in ("RR@3", "nDCG@3")}), name
        assert systems[name]["match_p50_ms"] > 0
    assert systems["other"]["by_query"]["RR@3"] == [1.0, 0.0, 0.0, 0.0]
    assert (systems["other"]["matched"], systems["other"]["text_p95_ms"]) == (None, None)
    assert systems["bm25"]["matched"] == sum(searcher.bm25(QUERIES[q], 9, count=True).matched for q in QRELS) / 4
    counted = [searcher.count(QUERIES[q], hybrid=Hybrid()) for q in QRELS]
    assert systems["hybrid"]["matched_by_query"] == counted
    assert 0 < systems["a third of the weight"]["matched"] < systems["plain"]["matched"]


def test_every_system_is_compared_with_bm25_in_every_measure(mixed: dict) -> None:
    assert mixed["query_ids"] == list(QRELS)
    assert mixed["query_texts"] == [QUERIES[query_id] for query_id in QRELS]
    values = {system["name"]: system["by_query"] for system in mixed["systems"]}
    assert mixed["baseline"] == "bm25"
    pairs = [(one["measure"], one["system"]) for one in mixed["comparisons"]]
    assert pairs == [(m, name) for m in ("RR@3", "nDCG@3") for name in values if name != "bm25"]
    for one in mixed["comparisons"]:
        differences = np.subtract(values[one["system"]][one["measure"]], values["bm25"][one["measure"]])
        assert one["difference"] == pytest.approx(differences.mean())
        assert (one["wins"], one["losses"]) == ((differences > 1e-12).sum(), (differences < -1e-12).sum())
    for system in mixed["systems"]:
        for name, (low, high) in system["intervals"].items():
            assert low - 1e-9 <= system["measures"][name] <= high + 1e-9


def test_output_contains_the_whole_result_and_the_summary_no_values_per_query(folder: Path, mixed: dict) -> None:
    assert json.loads((folder / "out" / OUTPUT_FILE).read_text()) == mixed
    settings = {"index": str(folder / "words"), "measures": ["RR@3"], "thresholds": [0.0], "resamples": 200}
    paths = {name: str(folder / file) for name, file in PATHS.items()}
    summary = evaluate_index(Deployment.model_validate({"evaluate": {**paths, **settings}})).summary()
    assert [(one["kind"], one["name"]) for one in summary["systems"]] == [
        ("bm25", "bm25"),
        ("sparse", "threshold 0"),
        ("hybrid", "hybrid"),
    ]
    assert not {"query_ids", "query_texts"} & summary.keys()
    assert not {"by_query", "matched_by_query"} & summary["systems"][0].keys()
    assert summary["efficiency"]["postings"].keys() == {"mean", "variance", "std", "max", "empty"}
    assert len(json.dumps(summary)) < 8_000


def test_flops_equal_multiplications_per_query_and_document(mixed: dict) -> None:
    efficiency = mixed["efficiency"]
    assert mixed["flops"] == pytest.approx(sum(efficiency["by_query"]["multiplications"]) / (4 * mixed["documents"]))
    assert mixed["l0_query"] == efficiency["l0_query"]["mean"] == sum(efficiency["by_query"]["terms"]) / 4
    by_query = {one["name"]: one["by_query"]["RR@3"] for one in mixed["systems"]}
    assert efficiency["by_query"]["measure"] == "RR@3"
    assert efficiency["by_query"]["gains"] == {
        name: [value - before for value, before in zip(values, by_query["bm25"], strict=True)]
        for name, values in by_query.items()
        if name != "bm25"
    }
    (any_term,) = [one for one in efficiency["matched"] if (one["kind"], one["threshold"]) == ("count", 1)]
    (plain,) = [one for one in mixed["systems"] if one["name"] == "plain"]
    assert any_term["documents"] == plain["matched"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "bm52"}, "evaluate.baseline: there is no system 'bm52'; use one of bm25, threshold 0"),
        ({"k": 99, "measures": ["nDCG@10", "R@100"]}, "evaluate.k: 99 hits are too few for R@100"),
        ({"systems": [{"kind": "hybrid"}]}, "evaluate.systems: 'hybrid' needs postings of words"),
        (
            {"systems": [{"kind": "two-step", "name": "x", "qk": 3, "rescore": 5}]},
            "evaluate.systems: 'x' is not possible; rescore=5 is less than k=1000",
        ),
        (
            {"systems": [{"kind": "hybrid", "fusion": "rrf", "depth": 10}]},
            "evaluate.systems: 'hybrid' is not possible; hybrid.depth=10",
        ),
        (
            {"systems": [{"kind": "run", "name": "x", "path": "nowhere.trec"}]},
            r"evaluate.systems \(x\): there is no file at nowhere.trec",
        ),
    ],
)
def test_impossible_systems_are_refused_before_any_query(folder: Path, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(folder, **settings)


def test_run_of_other_queries_is_refused(folder: Path) -> None:
    (folder / "foreign.trec").write_text("x Q0 lock 1 2.0 x\n")
    run = {"kind": "run", "name": "x", "path": str(folder / "foreign.trec")}
    with pytest.raises(SourceError, match="ranks documents for none of the judged queries"):
        evaluate(folder, systems=[run])


@pytest.mark.long
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
