import math
import sys

import ir_measures
import numpy as np
import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.measures import measure_by_query, parse_measures

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


def test_two_names_of_one_measure_have_the_same_values() -> None:
    found = measure_by_query(parse_measures("measures", ["RR@10", "MRR@10"]), QRELS, RUN, ["1"])
    assert np.array_equal(found["RR@10"], found["MRR@10"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("goodness", "is unknown"),
        ("NumRet", "not a mean"),
        ("alpha_nDCG@10", "no installed package"),
        ("Compat@10", "not possible"),
        ("nDCG@0", "give a cutoff of 1 or more"),
        ("nDCG@'ten'", "not possible"),
        ("P(nothing=1)@5", "not possible"),
    ],
)
def test_measure_without_value_per_query_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        parse_measures("evaluate.measures", ["RR@10", name])
    assert refused.value.field == "evaluate.measures"
