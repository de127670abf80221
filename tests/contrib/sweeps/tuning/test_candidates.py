from itertools import pairwise

import pytest

from lsr_prod_contrib.sweeps.tuning import Candidate, grid, preference


def test_grid_has_equal_ratios_and_both_ends() -> None:
    weights = grid(0.25, 4, 2)
    assert (weights[0], weights[-1], len(weights)) == (0.25, 4, 9)
    assert [b / a for a, b in pairwise(weights)] == pytest.approx([2**0.5] * 8)
    assert grid(1, 1, 4) == [1]
    assert grid(1, 1.1, 4) == [1, 1.1]


def test_cheaper_candidates_come_first_among_equal_ones() -> None:
    rows = [Candidate(0.4, None), Candidate(0.0, None), Candidate(0.4, 1.0), Candidate(0.0, 1.0), Candidate(0.0, 2.0)]
    assert sorted([*reversed(rows)], key=preference) == rows
