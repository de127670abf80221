"""Expanded and unexplained terms against brute force over every pair of a text and a term."""

import math

import numpy as np
import pytest

from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.diagnostics.unexplained import (
    UnexplainedRule,
    diagnose_vectors,
    find_unexplained,
    most_unexplained,
)
from lsr_prod_contrib.diagnostics.vectors import TextTerms, count_expansion, find_expanded, most_expanded

TERMS = 40


@pytest.fixture(scope="module")
def sample() -> tuple[list[dict[int, float]], list[set[int]]]:
    """Vectors and contained terms of 60 texts; some texts are empty."""
    rng = np.random.default_rng(3)
    common = rng.random(TERMS) ** 3
    contained = [set(np.flatnonzero(rng.random(TERMS) < common).tolist()) for _ in range(60)]
    contained[7] = set()
    vectors = [
        {int(term): float(np.float32(0.1 + rng.random())) for term in np.flatnonzero(rng.random(TERMS) < 0.3)}
        for _ in contained
    ]
    vectors[11] = {}
    return vectors, contained


def arrays(vectors: list[dict[int, float]], contained: list[set[int]]) -> tuple[SparseBatch, TextTerms]:
    rows = [sorted(row.items(), key=lambda pair: (-pair[1], pair[0])) for row in vectors]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    batch = SparseBatch(
        offsets,
        np.array([term for row in rows for term, _ in row], np.int32),
        np.array([weight for row in rows for _, weight in row], np.float32),
    )
    return batch, TextTerms.of([np.array(sorted(row), np.int32) for row in contained])


def test_expansion_equals_brute_force(sample: tuple[list[dict[int, float]], list[set[int]]]):
    vectors, contained = sample
    found = count_expansion(*arrays(vectors, contained), TERMS)
    for term in range(TERMS):
        texts = [i for i, row in enumerate(vectors) if term in row and term not in contained[i]]
        assert found.expanded[term] == len(texts)
        assert found.activated[term] == sum(term in row for row in vectors)
        assert found.contained[term] == sum(term in row for row in contained)
        assert found.weight[term] == pytest.approx(sum(vectors[i][term] for i in texts))
    pairs = [(i, term) for i, row in enumerate(vectors) for term in row]
    new = [(i, term) for i, term in pairs if term not in contained[i]]
    assert found.term_share == pytest.approx(len(new) / len(pairs))
    weight = sum(vectors[i][term] for i, term in new) / sum(vectors[i][term] for i, term in pairs)
    assert found.weight_share == pytest.approx(weight)


def test_most_expanded_are_sorted_and_have_an_expansion():
    vectors, contained = arrays([{0: 1.0, 1: 2.0}, {0: 3.0, 2: 1.0}, {2: 1.0}], [{1}, {2}, {2}])
    found = most_expanded(count_expansion(vectors, contained, 4), ["a", "b", "c", "d"], 10)
    assert [term.term for term in found] == ["a"]
    assert found[0]._asdict() == {"term": "a", "expanded": 2, "activated": 2, "contained": 0, "mean_weight": 2.0}


@pytest.mark.parametrize(
    "rule", [UnexplainedRule(), UnexplainedRule(min_pmi=0.3, min_together=4, min_texts=8, min_share=0.2)]
)
def test_unexplained_expansions_equal_brute_force(
    sample: tuple[list[dict[int, float]], list[set[int]]], rule: UnexplainedRule
):
    vectors, contained = sample
    n = len(contained)
    having = [sum(term in row for row in contained) for term in range(TERMS)]

    def explained(text: int, term: int) -> bool:
        for source in contained[text]:
            both = sum(term in row and source in row for row in contained)
            if both >= rule.min_together and math.log2(n * both / (having[source] * having[term])) >= rule.min_pmi:
                return True
        return False

    found = find_unexplained(*arrays(vectors, contained), TERMS, rule)
    rare = 0
    for term in range(TERMS):
        texts = [i for i, row in enumerate(vectors) if term in row and term not in contained[i]]
        frequent = bool(texts) and len(texts) >= rule.min_share * n
        judged = frequent and having[term] >= rule.min_texts
        rare += frequent and not judged
        left = [i for i in texts if judged and not explained(i, term)]
        assert found.judged[term] == judged
        assert found.unexplained[term] == len(left), term
        assert found.weight[term] == pytest.approx(sum(vectors[i][term] for i in left))
    assert found.too_rare == rare
    assert 0 < found.unexplained.sum() < found.expanded.sum()


def test_most_unexplained_have_more_than_half_of_their_expansions_unexplained(
    sample: tuple[list[dict[int, float]], list[set[int]]],
):
    found = find_unexplained(*arrays(*sample), TERMS)
    terms = most_unexplained(found, [str(number) for number in range(TERMS)], TERMS)
    wanted = {str(term) for term in range(TERMS) if 2 * found.unexplained[term] > found.expanded[term]}
    assert {term.term for term in terms} == wanted
    assert [term.unexplained for term in terms] == sorted((term.unexplained for term in terms), reverse=True)


def test_a_term_in_most_texts_explains_nothing():
    """Term 0 is a stop word: PMI with it cannot reach a bit, whatever it occurs with."""
    contained = [{0, 1, 2} for _ in range(9)] + [{1}]
    vectors: list[dict[int, float]] = [{} for _ in range(9)] + [{0: 1.0}]
    found = find_unexplained(*arrays(vectors, contained), 3)
    assert found.unexplained[0] == 1


def test_vectors_and_texts_of_different_number_are_refused():
    vectors, contained = arrays([{0: 1.0}], [{0}, {1}])
    with pytest.raises(ValueError, match="1 vectors for 2 texts"):
        find_expanded(vectors, contained, 3)


def test_summary_without_texts_has_no_expansion(sample: tuple[list[dict[int, float]], list[set[int]]]):
    vectors, contained = arrays(*sample)
    names = [str(number) for number in range(TERMS)]
    assert diagnose_vectors(vectors, None, names)["expansion"] is None
    whole = diagnose_vectors(vectors, contained, names)
    assert whole["expansion"]["most"][0]["term"] in names
    assert whole["unexplained"]["rule"] == {"min_pmi": 1.0, "min_together": 2, "min_texts": 5, "min_share": 0.01}
