import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod_contrib.click_sets.evaluation_set import draw_equally, thirds_by_rank
from lsr_prod_contrib.click_sets.hashing import mix, text_hashes

RATIOS = st.lists(st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]), max_size=40)


@settings(max_examples=80, deadline=None)
@given(RATIOS, st.integers(0, 5), st.one_of(st.none(), st.integers(3, 30)))
def test_thirds_and_draw_equal_sorted_lists(values, seed, drawn):
    ratio = np.array(values, np.float64)
    hashes = text_hashes([f"query {number}" for number in range(len(values))], seed)
    third = thirds_by_rank(ratio, hashes)
    ties = mix(hashes, 3).tolist()
    ordered = sorted(range(len(values)), key=lambda query: (values[query], ties[query], query))
    n = len(values)
    expected = [ordered[: n // 3], ordered[n // 3 : 2 * n // 3], ordered[2 * n // 3 :]]
    assert [sorted(one) for one in expected] == [np.flatnonzero(third == i).tolist() for i in range(3)]
    number = min(n // 3, n if drawn is None else drawn // 3)
    draws = mix(hashes, 4).tolist()
    kept = [query for one in expected for query in sorted(one, key=lambda q: (draws[q], q))[:number]]
    assert draw_equally(third, hashes, drawn).tolist() == sorted(kept)


def test_equal_ratios_are_split_by_hash_and_not_by_number():
    hashes = text_hashes([f"query {number}" for number in range(300)], 0)
    third = thirds_by_rank(np.ones(300), hashes)
    assert np.bincount(third).tolist() == [100, 100, 100]
    assert np.bincount(third[:100], minlength=3).min() > 15  # the first hundred are in all thirds


def test_mixed_hashes_are_spread_and_differ_by_draw():
    hashes = text_hashes([str(number) for number in range(1000)], 1)
    assert len(np.unique(mix(hashes, 1))) == 1000
    assert not (mix(hashes, 1) == mix(hashes, 2)).any()
    assert abs((mix(hashes, 1) / 2**64).mean() - 0.5) < 0.05
