"""Evaluation sets and training pairs of one click log: the method, from the log in memory to the sets in memory."""

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod_contrib.click_sets.clusters import Clusters, cluster_queries, given_clusters
from lsr_prod_contrib.click_sets.duplicates import ClickedTexts
from lsr_prod_contrib.click_sets.evaluation_set import EvaluationSet, SetBuilder
from lsr_prod_contrib.click_sets.hashing import Hashes, mix, text_hashes
from lsr_prod_contrib.click_sets.log import ClickLog
from lsr_prod_contrib.click_sets.relevant import relevant_pairs

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClickSets:
    """Sets of one log.

    Attributes:
        sets: ``test`` and ``validation``.
        training: (query, document) of the training pairs.
        roles: int8 [Q], role of every query; -1 for one that is not usable.
        clusters: clusters of the usable queries.
        counts: figures for the manifest.
    """

    sets: dict[str, EvaluationSet]
    training: tuple[Ints, Ints]
    roles: npt.NDArray[np.int8]
    clusters: Clusters
    counts: dict[str, Any]


def build_sets(log: ClickLog, settings: ClickSetSettings) -> ClickSets:
    """Build both sets and the training pairs.

    Args:
        log: the click log.
        settings: numbers, bounds and the seed; paths are not read.
    """
    query_hashes = text_hashes(log.keys.to_pylist(), settings.seed)
    document_hashes = text_hashes(log.documents.to_pylist(), settings.seed)
    relevant = relevant_pairs(log, query_hashes, document_hashes, settings)
    if settings.columns.cluster is not None:
        clusters = given_clusters(log.clusters, relevant.query)
    else:
        clusters = cluster_queries(
            relevant.query,
            relevant.document,
            len(log.keys),
            max_document_queries=settings.max_document_queries,
            max_cluster_queries=settings.max_cluster_queries,
        )
    roles = assign_roles(clusters, query_hashes, settings)
    unclustered = np.unique(relevant.query[clusters.of_query[relevant.query] < 0])
    roles[unclustered] = TRAINING
    clicked = ClickedTexts.of(log, clusters)
    builder = SetBuilder(log, relevant, clusters, clicked, query_hashes, document_hashes, settings)
    sets = {
        "test": builder.build(roles == TEST_QUERY, roles == TEST_DISTRACTOR, settings.test.drawn),
        "validation": builder.build(
            roles == VALIDATION_QUERY, roles == VALIDATION_DISTRACTOR, settings.validation.drawn
        ),
    }
    training = relevant.of(roles == TRAINING)
    sizes = np.bincount(clusters.of_query[clusters.of_query >= 0], minlength=clusters.count)
    counts = {
        "queries": len(log.keys),
        "documents": len(log.documents),
        "pairs": len(log.pair_query),
        "documents_with_several_texts": log.several_texts,
        "queries_with_several_clusters": log.several_clusters,
        "pairs_with_few_clicks": relevant.unclicked_enough,
        "queries_with_few_documents": relevant.queries_with_few,
        "usable_queries": len(np.unique(relevant.query)),
        "clusters": {
            "count": clusters.count,
            "of_one_query": int((sizes == 1).sum()),
            "largest": int(sizes.max(initial=0)),
            "largest_before_splits": clusters.largest,
            "split": clusters.split,
            "halvings": clusters.rounds,
            "popular_documents": clusters.popular_documents,
            "queries_without_cluster": len(unclustered),
            "drawn_from": len(np.unique(clusters.of_query[roles > TRAINING])),
        },
        "test": sets["test"].counts,
        "validation": sets["validation"].counts,
        "training": {"queries": int((roles == TRAINING).sum()), "pairs": len(training[0])},
    }
    return ClickSets(sets, training, roles, clusters, counts)


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
