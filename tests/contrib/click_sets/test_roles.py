from collections import Counter

import numpy as np

from lsr_prod_contrib.click_sets.build import (
    TEST_DISTRACTOR,
    TEST_QUERY,
    TRAINING,
    VALIDATION_DISTRACTOR,
    VALIDATION_QUERY,
    assign_roles,
    role_sequence,
)
from lsr_prod_contrib.click_sets.clusters import Clusters
from lsr_prod_contrib.click_sets.hashing import text_hashes
from tests.contrib.click_sets.logs import make_settings


def roles(sizes, seed=0, **changes):
    of_query = np.repeat(np.arange(len(sizes)), sizes)
    hashes = text_hashes([f"q{number}" for number in range(len(of_query))], seed)
    found = assign_roles(Clusters(of_query, len(sizes)), hashes, make_settings(**changes))
    return [Counter(found[of_query == cluster].tolist()) for cluster in range(len(sizes))]


def test_large_cluster_gives_the_numbers_of_the_paper():
    expected = {TEST_QUERY: 30, TEST_DISTRACTOR: 90, VALIDATION_QUERY: 1, VALIDATION_DISTRACTOR: 3, TRAINING: 376}
    assert roles([500], max_cluster_share=0.5) == [expected]
    assert Counter(role_sequence(make_settings())) == {role: n for role, n in expected.items() if role != TRAINING}


def test_part_of_a_section_keeps_the_other_defaults():
    settings = make_settings(test={"drawn": 9}, validation={"queries": 2})
    assert (settings.test.queries, settings.test.distractors, settings.test.drawn) == (30, 90, 9)
    assert (settings.validation.queries, settings.validation.distractors) == (2, 3)


def test_small_cluster_gives_one_of_each_role_in_turn_and_keeps_its_share_for_training():
    found = roles([1, 2, 5, 8], max_cluster_share=0.5)
    assert found[0] == {TRAINING: 1}
    assert found[1] == {TEST_QUERY: 1, TRAINING: 1}
    assert found[2] == {TEST_QUERY: 1, VALIDATION_QUERY: 1, TRAINING: 3}
    assert found[3] == dict.fromkeys(range(1, 5), 1) | {TRAINING: 4}


def test_number_of_clusters_and_their_smallest_size_are_bounds():
    drawn = [cluster for cluster in roles([4, 1, 4, 4, 4], clusters=2, min_cluster_queries=2) if cluster[TRAINING] == 0]
    assert len(drawn) == 2


def test_other_seed_draws_other_clusters():
    draws = {tuple(cluster[TEST_QUERY] for cluster in roles([4] * 9, seed, clusters=3)) for seed in range(5)}
    assert len(draws) > 1


def test_query_in_no_cluster_has_no_role():
    found = assign_roles(Clusters(np.array([-1, 0]), 1), text_hashes("ab", 0), make_settings())
    assert found.tolist() == [-1, TEST_QUERY]
