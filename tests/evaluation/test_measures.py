import math
import sys

import ir_measures
import numpy as np
import pytest
import pytrec_eval

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.measures import _parse, measure_by_query, parse_measures

QRELS = [ir_measures.Qrel("1", "a", 2), ir_measures.Qrel("1", "b", 1), ir_measures.Qrel("2", "c", 1)]
RUN = {"1": [("x", 3.0), ("b", 2.0), ("a", 1.0)], "3": [("a", 1.0)]}


def test_values_equal_definitions_by_hand() -> None:
    measures = parse_measures("measures", ["RR@10", "nDCG@3", "P@2", "R@2"])
    found = measure_by_query(measures, QRELS, RUN, ["2", "1"])
    gain = (1 / math.log2(3) + 2 / math.log2(4)) / (2 + 1 / math.log2(3))
    expected = {"RR@10": 1 / 2, "nDCG@3": gain, "P@2": 1 / 2, "R@2": 1 / 2}
    assert {name: values.tolist() for name, values in found.items()} == {
        name: [0.0, pytest.approx(value)] for name, value in expected.items()
    }


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="ir_measures 0.4.3 parses no name with an option there")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["nDCG", "nDCG@10", "nDCG(dcg='exp-log2')@10", "P(rel=2)@5", "AP(rel=2, judged_only=True)"]
)
def test_names_are_read_as_ir_measures_reads_them(name: str) -> None:
    assert parse_measures("measures", [name])[name] == ir_measures.parse_measure(name)


@pytest.mark.parametrize("name", ["P(2)@5", "P(rel=cut)@5", "P(rel=2", "nDCG@10@5", "a.b", "P@1; P@2"])
def test_other_expressions_are_no_measures(name: str) -> None:
    with pytest.raises(ConfigError, match="is unknown"):
        parse_measures("measures", [name])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        *((name, "AP") for name in ("MAP", "map", "Map")),
        *(
            (name, "nDCG@10")
            for name in ("ndcg_cut_10", "ndcg_cut.10", "ndcg@10", "NDCG@10", "ndcg_at_10", "ndcg_10", "dot_ndcg@10")
        ),
        *((name, "RR") for name in ("recip_rank", "mrr", "MRR", "reciprocal_rank")),
        *((name, "RR@10") for name in ("mrr@10", "MRR@10", "mrr_at_10")),
        *((name, "P@10") for name in ("P_10", "P.10", "precision@10", "Precision@10", "precision_at_10")),
        *((name, "R@100") for name in ("R@100", "recall_100", "recall@100", "Recall@100", "recall_at_100")),
        *((name, "Success@5") for name in ("success_5", "hit_rate@5", "accuracy@5")),
        ("Accuracy@5", "Accuracy@5"),
        ("map_cut_1000", "AP@1000"),
        ("r_precision", "Rprec"),
        ("set_recall", "SetR"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("rbp.95", "RBP(p=0.95)"),
        ("ndcg(judged_only=True)@5", "nDCG(judged_only=True)@5"),
        ("ndcg_burges@10", "nDCG(dcg='exp-log2')@10"),
    ],
)
def test_names_of_other_tools_are_read(name: str, own: str) -> None:
    assert str(_parse(name)) == own


def test_every_measure_of_trec_eval_has_its_own_value() -> None:
    run = {"1": {"x": 3.0, "b": 2.0, "a": 1.0}}
    names = {"map", "ndcg", "recip_rank", "Rprec", "bpref", "infAP", "set_P", "set_recall", "set_F", "set_map"}
    names |= {"P_5", "recall_5", "ndcg_cut_5", "map_cut_5", "success_5", "iprec_at_recall_0.20"}
    theirs = pytrec_eval.RelevanceEvaluator({"1": {"a": 2, "b": 1, "n": -1, "z": 0}}, names).evaluate(run)["1"]
    qrels = [ir_measures.Qrel("1", doc_id, grade) for doc_id, grade in {"a": 2, "b": 1, "n": -1, "z": 0}.items()]
    rankings = {"1": list(run["1"].items())}
    ours = measure_by_query(parse_measures("measures", sorted(names)), qrels, rankings, ["1"])
    assert {name: values[0] for name, values in ours.items()} == pytest.approx({name: theirs[name] for name in names})


def test_every_measure_breaks_ties_as_trec_eval() -> None:
    names = ["RR@10", "RR", "nDCG@1", "P@1", "Judged@1"]
    for relevant, value in (("a", 0.0), ("b", 1.0)):
        qrels = [ir_measures.Qrel("1", relevant, 1)]
        run = {"1": [("a", 1.0), ("b", 1.00000001)]}  # equal in float32; trec_eval puts the highest id first
        found = measure_by_query(parse_measures("measures", names), qrels, run, ["1"])
        assert {name: one[0] for name, one in found.items()} == {
            "RR@10": max(value, 0.5), "RR": max(value, 0.5), "nDCG@1": value, "P@1": value, "Judged@1": value,
        }  # fmt: skip


def test_negative_grades_are_not_relevant_and_not_judged_for_bpref() -> None:
    run = {"1": [("n", 3.0), ("a", 2.0)]}
    found = {}
    for grade in (-1, 0):
        qrels = [ir_measures.Qrel("1", "a", 1), ir_measures.Qrel("1", "n", grade)]
        values = measure_by_query(parse_measures("measures", ["bpref", "nDCG@5", "RR"]), qrels, run, ["1"])
        found[grade] = {name: float(value[0]) for name, value in values.items()}
    assert found[-1] | {"bpref": 0.0} == found[0]
    assert found[-1]["bpref"] == 1.0


def test_two_names_of_one_measure_have_the_same_values() -> None:
    found = measure_by_query(parse_measures("measures", ["RR@10", "MRR@10"]), QRELS, RUN, ["1"])
    assert np.array_equal(found["RR@10"], found["MRR@10"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("goodness", r"is unknown \(no measure is called goodness\)"),
        ("ndgc@10", "is unknown .*, did you mean nDCG"),
        ("recal_10", "did you mean R or"),
        ("hits@10", "did you mean Success"),
        ("NumRet", "not a mean"),
        ("alpha_nDCG@10", "no installed package"),
        ("Compat@10", "not possible"),
        ("nDCG@0", "give a cutoff from 1 to 10,000"),
        ("R@10001", "give a cutoff from 1 to 10,000"),
        ("nDCG@'ten'", "not possible"),
        ("P(nothing=1)@5", "not possible"),
    ],
)
def test_measure_without_value_per_query_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        parse_measures("evaluate.measures", ["RR@10", name])
    assert refused.value.field == "evaluate.measures"
