import numpy as np
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod_contrib.vectors.vector import (
    Rules,
    VectorRow,
    Vocabulary,
    as_batch,
    as_rows,
    row_of_ids,
    row_of_tokens,
)
from tests.indexing.corpus import make_bundle


def test_vocabulary_with_a_repeated_term_is_rejected(tmp_path):
    make_bundle(tmp_path / "bundle", ["a", "b", "a"])
    with pytest.raises(ArtifactError, match="'a' twice"):
        Vocabulary.load(tmp_path / "bundle")


def test_terms_are_sorted_by_weight_then_id_without_zeros(rules):
    row = row_of_tokens("d", {"数据": 1, "lock": 2.5, "naïve": 0, "##ing": 1.0}, "text", rules)
    assert isinstance(row, VectorRow)
    assert row.terms.tolist() == [0, 1, 3]
    assert row.weights.tolist() == [2.5, 1.0, 1.0]
    assert (row.terms.dtype, row.weights.dtype, row.contents) == (np.int32, np.float32, "text")


@pytest.mark.parametrize(
    "weight", [-1, -0.5, float("nan"), float("inf"), 1e39, 10**400, True, "1", None, [1]], ids=lambda w: str(w)[:8]
)
def test_invalid_weight_makes_a_bad_row(rules, weight):
    problem = row_of_tokens("d", {"lock": 1, "数据": weight}, None, rules)
    assert problem[0] == "bad_weight"


@pytest.mark.parametrize("weight", [256, 1.5, 10**6])
def test_weight_that_is_not_an_impact_is_bad_if_impacts_are_required(vocabulary, weight):
    impacts = Rules(vocabulary, largest_impact=255)
    assert row_of_tokens("d", {"lock": weight}, None, impacts)[0] == "bad_weight"
    assert row_of_tokens("d", {"lock": 255, "数据": 1.0}, None, impacts).weights.tolist() == [255, 1]


def test_unknown_terms_make_a_vector_bad_or_are_dropped_and_counted(vocabulary):
    vector = {"lock": 1, "nowhere": 2, "\ud800": 3}
    reason, detail = row_of_tokens("d", vector, None, Rules(vocabulary))
    assert reason == "unknown_term"
    assert "'nowhere'" in detail
    row = row_of_tokens("d", vector, None, Rules(vocabulary, drop_unknown=True))
    assert (row.terms.tolist(), row.unknown) == ([0], 2)


def test_a_bad_weight_of_an_unknown_term_is_still_bad(vocabulary):
    assert row_of_tokens("d", {"nowhere": -1}, None, Rules(vocabulary, drop_unknown=True))[0] == "bad_weight"


@pytest.mark.parametrize(
    ("terms", "reason"), [([0, 99], "unknown_term"), ([0, -1], "unknown_term"), ([3, 3], "repeated_term")]
)
def test_vectors_of_term_ids_are_validated_like_vectors_of_terms(rules, terms, reason):
    assert row_of_ids("d", np.array(terms), np.array([1.0, 2.0]), rules)[0] == reason


def test_rows_and_batches_convert_without_loss(rules):
    rows = [row_of_tokens(str(i), {"lock": i, "Ω": 1}, None, rules) for i in range(3)]
    batch = as_batch(rows)
    again = as_rows(["0", "1", "2"], batch)
    assert [row.weights.tolist() for row in again] == [row.weights.tolist() for row in rows]
    assert len(as_batch([])) == 0
    with pytest.raises(ValueError, match="2 ids for 3 vectors"):
        as_rows(["0", "1"], batch)
