"""Roles of queries: training, or candidate or distractor of the test or the validation set (C.1)."""

from itertools import cycle

import numpy as np
import numpy.typing as npt

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.evaluation.click_sets.clusters import Clusters
from lsr_prod.evaluation.click_sets.hashing import Hashes, mix

TRAINING, TEST_QUERY, VALIDATION_QUERY, TEST_DISTRACTOR, VALIDATION_DISTRACTOR = range(5)

_ORDER_OF_CLUSTERS, _ORDER_IN_CLUSTER = 1, 2


def role_sequence(settings: ClickSetSettings) -> list[int]:
    """Return the roles of the queries of a large cluster in the order in which they are given.

    Roles take turns, so that a small cluster has queries of each: test query, validation query, distractor of the test
    set, distractor of the validation set. A role whose number is reached leaves the turn.
    """
    left = {
        TEST_QUERY: settings.test.queries,
        VALIDATION_QUERY: settings.validation.queries,
        TEST_DISTRACTOR: settings.test.distractors,
        VALIDATION_DISTRACTOR: settings.validation.distractors,
    }
    sequence: list[int] = []
    for role in cycle(left):
        if not any(left.values()):
            return sequence
        if left[role]:
            left[role] -= 1
            sequence.append(role)
    raise AssertionError("a cycle does not end")


def assign_roles(clusters: Clusters, hashes: Hashes, settings: ClickSetSettings) -> npt.NDArray[np.int8]:
    """Draw clusters, then queries of each, without replacement.

    Returns:
        int8 [Q], the role of every query; -1 for a query that is in no cluster.
    """
    of_query = clusters.of_query
    roles = np.where(of_query >= 0, TRAINING, -1).astype(np.int8)
    members = np.flatnonzero(of_query >= 0)
    if not len(members):
        return roles
    members = members[np.lexsort((members, mix(hashes[members], _ORDER_IN_CLUSTER), of_query[members]))]
    size = np.bincount(of_query[members], minlength=clusters.count)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    first = np.full(clusters.count, len(of_query), np.int64)
    np.minimum.at(first, of_query[members], members)
    eligible = np.flatnonzero(size >= settings.min_cluster_queries)
    drawn = eligible[np.lexsort((eligible, mix(hashes[first[eligible]], _ORDER_OF_CLUSTERS)))][: settings.clusters]
    sequence = np.array(role_sequence(settings), np.int8)
    taken = np.zeros(clusters.count, np.int64)
    taken[drawn] = np.minimum(len(sequence), np.floor(size[drawn] * settings.max_cluster_share).astype(np.int64))
    rank = np.arange(len(members)) - start[of_query[members]]
    chosen = rank < taken[of_query[members]]
    roles[members[chosen]] = sequence[rank[chosen]]
    return roles
