"""Changes of rankings, against sets, the definition of rank-biased overlap, and hand-checked examples."""

import itertools
import random

import pytest

from lsr_prod.operations.canary import compare_rankings, rank_biased_overlap

P = 0.9


def extrapolated(a: list[str], b: list[str], depths: int) -> float:
    """Rank-biased overlap by its definition, the sum of p^d agreement(d), with the ranks below the end assumed."""
    short, long = sorted((a, b), key=len)
    s, k = len(short), len(long)

    def common(depth: int) -> float:
        return len(set(short[:depth]) & set(long[:depth]))

    total = 0.0
    for depth in range(1, depths):
        if depth <= s:
            agreement = common(depth) / depth
        elif depth <= k:  # assumed: the rest agrees as much, X_s (d - s) / s more
            agreement = (common(depth) + common(s) * (depth - s) / s) / depth
        else:
            agreement = (common(k) - common(s)) / k + common(s) / s
        total += P ** (depth - 1) * agreement
    return (1 - P) * total


def test_rank_biased_overlap_equals_its_definition():
    dice = random.Random(1)
    for _ in range(50):
        a, b = (dice.sample("abcdefghijklmnop", dice.randint(1, 12)) for _ in range(2))
        assert rank_biased_overlap(a, b) == pytest.approx(extrapolated(a, b, 400), abs=1e-9), (a, b)
        assert rank_biased_overlap(a, b) == pytest.approx(rank_biased_overlap(b, a))


def test_rank_biased_overlap_of_equal_disjoint_and_empty_rankings():
    assert rank_biased_overlap(["a", "b"], ["a", "b"]) == 1.0
    assert rank_biased_overlap([], []) == 1.0
    assert rank_biased_overlap(["a", "b"], ["c", "d"]) == 0.0
    assert rank_biased_overlap([], ["c"]) == 0.0


def test_change_near_the_top_weighs_more_than_near_the_end():
    ids = [f"d{i}" for i in range(10)]
    swapped = [[*ids[:i], ids[i + 1], ids[i], *ids[i + 2 :]] for i in range(9)]
    values = [rank_biased_overlap(ids, each) for each in swapped]
    assert all(upper < lower < 1 for upper, lower in itertools.pairwise(values))


def test_documents_that_entered_left_and_moved_are_counted():
    change = compare_rankings("q", "text", [("a", 3.0), ("b", 2.0), ("c", 1.0)], [("a", 9.0), ("c", 8.0)])
    assert (change.entered, change.left, change.moved) == (0, 1, 1)
    assert change.overlap == pytest.approx(2 / 3)
    row = change.to_json()
    assert row["b"] == [{"doc_id": "a", "rank": 1, "score": 9.0}, {"doc_id": "c", "rank": 2, "score": 8.0}]
    assert row["change"] == pytest.approx(1 - change.rbo)
    assert (row["value_a"], row["value_b"]) == (None, None)


@pytest.mark.parametrize(("a", "b", "overlap"), [([], [], 1.0), ([], ["x"], 0.0), (["x"], [], 0.0)])
def test_overlap_of_empty_sides(a, b, overlap):
    change = compare_rankings("q", "text", [(i, 1.0) for i in a], [(i, 1.0) for i in b])
    assert change.overlap == overlap
