from collections.abc import Sequence
from pathlib import Path

import ir_measures
import numpy as np
import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.vector_evaluation import Encoded, Level, LevelReport, evaluate, measure_levels
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.indexing.test_in_memory import batch, random_rows

LEVELS = [(0, 0), (7, 20), (5, 20), (5, 10)]
THRESHOLDS = [0.0, 0.4, 0.6]
V = 40


@pytest.fixture(scope="module")
def documents() -> Encoded:
    return Encoded([f"d{i}" for i in range(60)], batch(random_rows(np.random.default_rng(1), 60, width=V, share=0.7)))


@pytest.fixture(scope="module")
def queries() -> Encoded:
    rows = random_rows(np.random.default_rng(2), 12, width=V, share=0.3)
    rows[3] = [0.0] * V
    return Encoded([f"q{i}" for i in range(12)], batch(rows))


@pytest.fixture(scope="module")
def qrels() -> list[ir_measures.Qrel]:
    rng = np.random.default_rng(3)
    found = [(f"q{i}", f"d{d}") for i in range(12) for d in rng.choice(60, 3, replace=False)]
    return [*(ir_measures.Qrel(query_id, doc_id, 1) for query_id, doc_id in found), ir_measures.Qrel("other", "d1", 1)]


@pytest.fixture(scope="module")
def reports(documents: Encoded, queries: Encoded, qrels: list[ir_measures.Qrel]) -> list[LevelReport]:
    return evaluate(
        documents, queries, qrels, levels=LEVELS, thresholds=THRESHOLDS, measures=["RR@10", "R@10", "R@20", "AP"]
    )


def _dense(vectors: SparseBatch, keep: int) -> np.ndarray:
    dense = np.zeros((len(vectors), V))
    for i in range(len(vectors)):
        terms, weights = vectors.row(i)
        dense[i, terms[: keep or None]] = weights[: keep or None]
    return dense


def _ranking(scores: np.ndarray, shared: np.ndarray, required: int, ids: Sequence[str]) -> list[str]:
    places = np.flatnonzero(shared >= required)
    return [ids[place] for place in places[np.argsort(-scores[places], kind="stable")]]


def test_one_report_per_level_and_threshold_in_order(reports: list[LevelReport]) -> None:
    asked = [(qk, dk, threshold) for qk, dk in LEVELS for threshold in THRESHOLDS]
    assert [(report.qk, report.dk, report.threshold) for report in reports] == asked


def test_costs_equal_counts_by_hand(reports: list[LevelReport], documents: Encoded, queries: Encoded) -> None:
    for report in reports:
        q, d = _dense(queries.vectors, report.qk) > 0, _dense(documents.vectors, report.dk) > 0
        assert report.l0_query == pytest.approx(q.sum() / 12)
        assert report.l0_document == pytest.approx(d.sum() / 60)
        assert report.flops == pytest.approx(sum(d[:, term].sum() for row in q for term in np.flatnonzero(row)) / 720)
        needed = [max(1, -(-round(10 * report.threshold) * row.sum() // 10)) for row in q]
        matched = [((d & row).sum(axis=1) >= need).sum() for row, need in zip(q, needed, strict=True)]
        assert report.matched == pytest.approx(sum(matched) / 12)


def test_quality_equals_exact_scores_up_to_rounding(
    reports: list[LevelReport], documents: Encoded, queries: Encoded, qrels: list[ir_measures.Qrel]
) -> None:
    for report in reports:
        q, d = _dense(queries.vectors, report.qk), _dense(documents.vectors, report.dk)
        expected = []
        for i in range(12):
            need = max(1, -(-round(10 * report.threshold) * int((q[i] > 0).sum()) // 10))
            ranking = _ranking(d @ q[i], ((d > 0) & (q[i] > 0)).sum(axis=1), need, documents.ids)
            relevant = {qrel.doc_id for qrel in qrels if qrel.query_id == f"q{i}"}
            expected.append(len(relevant & set(ranking[:20])) / len(relevant))
        # Rounding to impacts can swap documents at the cut: one of three documents, for few queries.
        assert np.abs(report.by_query["R@20"] - expected).sum() <= 2 / 3 + 1e-9
        assert report.measures["R@20"] == pytest.approx(np.mean(report.by_query["R@20"]))


def test_values_by_query_are_in_order_with_zero_without_hits(reports: list[LevelReport]) -> None:
    for report in reports:
        assert set(report.by_query) == {"RR@10", "R@10", "R@20", "AP"}
        for name, values in report.by_query.items():
            assert values.shape == (12,)
            assert values[3] == 0
            assert report.measures[name] == pytest.approx(values.mean())


def test_perfect_vectors_score_one_and_other_judgments_are_ignored() -> None:
    one = Encoded(["a", "b", "c"], batch(np.eye(3).tolist()))
    qrels = [*(ir_measures.Qrel(name, name, 1) for name in "abc"), ir_measures.Qrel("z", "a", 1)]
    (report,) = evaluate(one, one, qrels, levels=[(0, 0)], thresholds=[0.6], measures=["RR@10", "R@1"])
    assert report.measures == {"RR@10": 1.0, "R@1": 1.0}
    assert report.flops == pytest.approx(1 / 3)


def test_collapsed_model_has_zero_measures() -> None:
    nothing = Encoded(["a", "b"], batch([[0.0, 0.0], [0.0, 0.0]]))
    qrels = [ir_measures.Qrel("a", "a", 1)]
    for report in evaluate(nothing, nothing, qrels, levels=LEVELS, thresholds=[0.0], measures=["RR@10"]):
        assert (report.measures["RR@10"], report.flops, report.l0_document, report.matched) == (0, 0, 0, 0)


def test_indexes_are_deleted(documents: Encoded, queries: Encoded, tmp_path: Path) -> None:
    qrels = [ir_measures.Qrel("q1", "d1", 1)]
    arguments = {"levels": LEVELS, "thresholds": [0.0], "measures": ["RR@10"]}
    evaluate(documents, queries, qrels, scratch=tmp_path, **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nDGC@10", "R@x", "__import__('os')"])
def test_unknown_measure_is_refused(name: str, documents: Encoded, queries: Encoded) -> None:
    with pytest.raises(ConfigError, match="measures: "):
        evaluate(documents, queries, [], levels=[(0, 0)], thresholds=[0.0], measures=[name])


def test_levels_with_words_rank_by_the_weighted_sum() -> None:
    documents = Encoded(["a", "b"], batch([[1.0, 0.0], [0.5, 0.5]]), ["red", "blue"])
    queries = Encoded(["q"], batch([[1.0, 0.0]]), ["blue"])
    qrels = [ir_measures.Qrel("q", "b", 1)]
    levels = [Level(0, 0), Level(0, 0, hybrid_weight=0.01), Level(0, 0, hybrid_weight=10.0)]
    found = dict(measure_levels(documents, queries, qrels, levels, measures=["RR@10"]))
    assert [found[level].measures["RR@10"] for level in levels] == [0.5, 0.5, 1.0]
    assert [found[level].flops for level in levels] == [1.0, 1.5, 1.5]
    assert found[levels[0]].bytes < found[levels[1]].bytes
    assert all(report.match_p50_ms > 0 for report in found.values())
