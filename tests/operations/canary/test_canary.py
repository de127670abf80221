"""Two versions of an index with the same queries: figures against plain loops over the answers of two searchers."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import numpy as np
import pytest

from lsr_prod.errors import PublicationError, SourceError
from lsr_prod.jobs.command import main
from lsr_prod.operations.canary import CanaryQuery, CanarySettings, Judge, open_side, read_queries, run_canary
from lsr_prod.operations.canary.changes import document_drift
from lsr_prod.search import Searcher
from tests.indexing.corpus import Doc, encode_corpus, make_index

TEXTS = {
    f"d{i}": text
    for i, text in enumerate(
        [
            "the quick brown fox jumps",
            "a lazy dog sleeps",
            "rain over the sea",
            "a fox and a dog",
            "the sea is deep",
            "waves of the sea and rain",
            "brown bread and butter",
            "a fox in the rain",
        ]
    )
}
QUERIES = [CanaryQuery(f"q{i}", text) for i, text in enumerate([*TEXTS.values(), "unknown things"])]
QRELS = [ir_measures.Qrel("q0", "d0", 1), ir_measures.Qrel("q3", "d3", 1), ir_measures.Qrel("q4", "d4", 1)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Publication 1 is good; in publication 2 two documents have each other's vector, and one is missing."""
    folder = tmp_path_factory.mktemp("canary") / "index"
    good = encode_corpus(tiny_bundle, TEXTS)
    bad = {**good, "d0": good["d1"], "d1": good["d0"]}
    del bad["d5"]
    make_index(folder, good, bundle=tiny_bundle)
    make_index(folder, bad, bundle=tiny_bundle, shards=2, deleted=["d6"])
    return folder


@pytest.fixture(scope="module")
def sides(index: Path) -> Iterator[tuple[Searcher, Searcher]]:
    with open_side(f"{index}@1") as a, open_side(str(index)) as b:
        yield a, b


def test_side_opens_the_named_publication(index, sides):
    assert [side.publication.number for side in sides] == [1, 2]
    with pytest.raises(PublicationError, match="has no publication 7"):
        open_side(f"{index}@7")


def test_figures_equal_loops_over_the_answers(sides):
    k = 4
    canary = run_canary(*sides, QUERIES, CanarySettings(k=k, count=True), names=("old", "new"))
    overlaps, unchanged, weights, matched = [], 0, [defaultdict(list), defaultdict(list)], [[], []]
    answers = [side.search_batch([query.text for query in QUERIES], k) for side in sides]
    for query, *results in zip(QUERIES, *answers, strict=True):
        ids = [[hit.doc_id for hit in result.hits] for result in results]
        overlaps += [len({*ids[0]} & {*ids[1]}) / len(ids[0])] if ids[0] else []
        unchanged += ids[0] == ids[1]
        for side, result in enumerate(results):
            matched[side].append(sides[side].count(query.text))
            for term, weight, _ in result.query:
                weights[side][term].append(weight)
    assert canary.queries == len(QUERIES)
    assert canary.compared == len(overlaps)
    assert canary.overlap == pytest.approx(np.mean(overlaps))
    assert canary.overlap < 1
    assert canary.unchanged == unchanged
    assert [side.matched for side in canary.sides] == [pytest.approx(np.mean(each)) for each in matched]
    assert [side.documents for side in canary.sides] == [8, 6]
    assert canary.sides[0].l0_query == pytest.approx(sum(map(len, weights[0].values())) / len(QUERIES))
    assert canary.terms == ()  # both sides have the same encoder
    changes = [row.change for row in canary.rows]
    assert changes == sorted(changes, reverse=True)
    assert {row.query_id for row in canary.rows} == {query.query_id for query in QUERIES}
    assert canary.documents["d4"] == "the sea is deep"
    assert canary.documents["d5"] == "waves of the sea and rain"  # only side A has it
    assert (canary.judged, canary.wins, canary.losses, canary.ties, canary.mean_a) == (0, 0, 0, 0, None)


def test_only_the_rows_that_changed_most_are_kept(sides):
    whole = run_canary(*sides, QUERIES, CanarySettings(k=4))
    some = run_canary(*sides, iter(QUERIES), CanarySettings(k=4, rows=3))
    assert some.rows == whole.rows[:3]
    assert (some.overlap, some.rbo, some.unchanged) == (whole.overlap, whole.rbo, whole.unchanged)


def test_batches_do_not_change_figures(sides, monkeypatch):
    whole = run_canary(*sides, QUERIES, CanarySettings(k=4), judge=Judge("nDCG@4", QRELS))
    monkeypatch.setattr("lsr_prod.operations.canary.canary._BATCH", 2)
    parts = run_canary(*sides, QUERIES, CanarySettings(k=4), judge=Judge("nDCG@4", QRELS))
    assert [row.query_id for row in parts.rows] == [row.query_id for row in whole.rows]
    assert (parts.overlap, parts.wins, parts.losses) == (whole.overlap, whole.wins, whole.losses)


def test_judged_queries_win_lose_and_tie(sides):
    canary = run_canary(*sides, QUERIES, CanarySettings(k=4), judge=Judge("nDCG@4", QRELS))
    values = []
    for side in sides:
        results = {query.query_id: side.search(query.text, 4) for query in QUERIES}
        run = [
            ir_measures.ScoredDoc(query_id, hit.doc_id, hit.score)
            for query_id, result in results.items()
            for hit in result.hits
        ]
        found = ir_measures.iter_calc([ir_measures.nDCG @ 4], QRELS, run)
        values.append({each.query_id: each.value for each in found})
    rows = {row.query_id: row for row in canary.rows}
    for query_id in ("q0", "q3", "q4"):
        assert rows[query_id].value_a == pytest.approx(values[0][query_id])
        assert rows[query_id].value_b == pytest.approx(values[1][query_id])
    assert rows["q1"].value_a is None
    differences = [values[1][query_id] - values[0][query_id] for query_id in values[0]]
    assert canary.judged == 3
    assert (canary.wins, canary.losses) == (sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    assert canary.losses >= 1  # d0 has the vector of another document
    assert canary.mean_b == pytest.approx(np.mean(list(values[1].values())))


def small_index(folder: Path, corpus: dict[str, dict[int, int]], vocabulary: int) -> Searcher:
    make_index(folder, {doc_id: Doc(terms, "x") for doc_id, terms in corpus.items()}, vocabulary_size=vocabulary)
    return Searcher.open(folder)


def test_document_drift_matches_terms_by_name(tmp_path):
    a = small_index(tmp_path / "a", {"d0": {0: 8, 1: 4}, "d1": {0: 16}, "d2": {2: 1}}, 3)
    b = small_index(tmp_path / "b", {"d0": {0: 8}, "d1": {1: 16, 3: 1}, "d2": {1: 8, 2: 1}}, 4)  # t3 is only here
    found = {each.term: each for each in document_drift(a, b, 10)}
    assert found.keys() == {"t0", "t1"}  # the share of t2 has not changed
    assert (found["t0"].share_a, found["t0"].share_b) == (2 / 3, 1 / 3)
    assert (found["t0"].weight_a, found["t0"].weight_b) == (12 / 32, 8 / 32)
    assert found["t1"].drift == pytest.approx(1 / 3)
    assert (found["t1"].weight_a, found["t1"].weight_b) == (4 / 32, 12 / 32)
    assert document_drift(a, a, 10) == []


class Fixed:
    """A searcher with the weights of other queries."""

    def __init__(self, searcher: Searcher, vectors: list[dict[str, float]]) -> None:
        self._searcher, self._vectors = searcher, vectors

    def __getattr__(self, name):
        return getattr(self._searcher, name)

    def search_batch(self, texts, k, **options):
        return [self._searcher.search_vector(self._vectors[int(text)], k, **options) for text in texts]


def test_query_terms_are_compared_over_all_queries_that_have_them(tmp_path):
    searcher = small_index(tmp_path / "a", {"d0": {0: 8, 1: 4}, "d1": {2: 16}}, 3)
    a = Fixed(searcher, [{"t0": 1.0, "t1": 0.5}, {"t0": 2.0}, {"t2": 1.0}])
    b = Fixed(searcher, [{"t0": 1.0}, {"t0": 1.0, "t1": 0.25}, {"t2": 1.0}])
    canary = run_canary(a, b, [CanaryQuery(str(i), str(i)) for i in range(3)], CanarySettings(k=2))
    assert [(each.term, each.weight_a, each.weight_b, each.drift) for each in canary.terms] == [
        ("t0", 1.5, 1.0, -0.5),
        ("t1", 0.25, 0.125, -0.125),  # two queries have it, one on each side
    ]
    assert (canary.terms[1].queries_a, canary.terms[1].queries_b) == (1, 1)
    assert canary.sides[0].weight_query == pytest.approx(4.5 / 3)


@pytest.mark.parametrize("line", ["", "[]", '{"text": "x"}', '{"_id": "q", "text": 1}', "{"])
def test_invalid_queries_are_an_error(tmp_path, line):
    path = tmp_path / "queries.jsonl"
    path.write_text(line and f"{line}\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"queries\.jsonl"):
        list(read_queries(str(path)))


def files(folder: Path) -> tuple[str, str]:
    queries, qrels = folder / "queries.jsonl", folder / "qrels.txt"
    queries.write_text(
        "".join(json.dumps({"_id": each.query_id, "text": each.text}) + "\n" for each in QUERIES), encoding="utf-8"
    )
    qrels.write_text("".join(f"{each.query_id} 0 {each.doc_id} 1\n" for each in QRELS), encoding="utf-8")
    return str(queries), str(qrels)


def test_job_writes_its_result(index, tmp_path, capsys):
    queries, qrels = files(tmp_path)
    command = [
        "index",
        "canary",
        "--a",
        f"{index}@1",
        "--b",
        str(index),
        "--queries",
        queries,
        "--qrels",
        qrels,
        "--k",
        "4",
    ]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    summary = json.loads(output.rpartition("RESULT ")[2])
    written = json.loads((tmp_path / "out" / "canary.json").read_text(encoding="utf-8"))
    assert summary["output"] == f"{tmp_path}/out/canary.json"
    assert {name: written[name] for name in ("a", "b", "k", "queries", "overlap", "measure")} == {
        "a": f"{index}@1", "b": str(index), "k": 4, "queries": 9, "overlap": summary["overlap"], "measure": "nDCG@4",
    }  # fmt: skip
    assert written["wins"] + written["losses"] + written["ties"] == written["judged"] == 3
    assert written["sides"]["a"]["publication"] == 1
    assert "queries that changed most" in output
    Path(qrels).write_text("".join(f"{each.query_id} 0 elsewhere 1\n" for each in QRELS), encoding="utf-8")
    assert main(command) == 1
    assert "judges as relevant is in the index, for example 'elsewhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--k", "0"], "--k: 0 is not possible"),
        (["--threshold", "nan"], "--threshold: nan is not possible"),
        (["--measure", "nDCG@3"], "--measure: there are no judgments"),
        (["--queries", "missing.jsonl"], "--queries: there is no file at missing.jsonl"),
        (["--qrels", "QRELS", "--measure", "best"], "--measure: a measure is unknown"),
        (["--qrels", "QRELS", "--measure", "R@100"], "--k: 10 hits are too few for R@100"),
        (["--output", "QRELS"], "is a file"),
        (["--rows", "0"], "--rows: 0 is not possible"),
    ],
)
def test_job_refuses_impossible_options(index, tmp_path, capsys, options, problem):
    queries, qrels = files(tmp_path)
    given = [qrels if option == "QRELS" else option for option in options]
    assert main(["index", "canary", "--a", str(index), "--b", str(index), "--queries", queries, *given]) == 2
    assert problem in capsys.readouterr().err


def test_page_compares_two_indexes(index, tmp_path, capsys):
    queries, _ = files(tmp_path)
    sides = ["--a", f"{index}@1", "--b", str(index), "--queries", queries, "--k", "4"]
    assert main(["inspect", "side-by-side", *sides, "--output", str(tmp_path)]) == 0
    page = json.loads((tmp_path / "side-by-side.json").read_text(encoding="utf-8"))
    assert page["data"]["queries"] == 9
    assert page["data"]["sides"][0] == {"figure": "publication", "a": 1, "b": 2}
    assert json.loads(capsys.readouterr().out.rpartition("RESULT ")[2])["queries"] == 9
