"""Sets of a small log by hand, and of random logs against a slow reference."""

import random

import numpy as np
import pytest

from lsr_prod.inference.terms.analysis import distinct_words
from lsr_prod_contrib.click_sets.build import build_sets
from lsr_prod_contrib.click_sets.clusters import cluster_queries
from lsr_prod_contrib.click_sets.duplicates import ClickedTexts
from lsr_prod_contrib.click_sets.evaluation_set import SetBuilder
from lsr_prod_contrib.click_sets.hashing import mix, text_hashes
from lsr_prod_contrib.click_sets.relevant import relevant_pairs
from lsr_prod_contrib.click_sets.rows import normalized
from tests.contrib.click_sets.logs import click, make_log, make_settings, random_rows

ALL = {"queries": 100, "distractors": 0}
NONE = {"queries": 1, "distractors": 0}

HAND = [
    # shoes: two queries that share documents
    click("red shoes", "s1", "red leather shoes", 9),
    click("red shoes", "s2", "car shoes", 5),
    click("red shoes", "s3", "shoes on sale", 5),
    click("red shoes", "s4", "boots", 2),
    click("shoes", "s1", "red leather shoes", 3),
    click("shoes", "s2", "car shoes", 1),
    # cars
    click("red car", "c1", "fast red cars and shoes", 4),
    click("red car", "c2", "a road", 3),
    click("car", "c1", "fast red cars and shoes", 4),
    # a document with the text of a positive, under another id
    click("red leather", "x1", "Red  Leather SHOES", 4),
]


def build(rows, **changes):
    log = make_log(rows)
    settings = make_settings(**{"test": ALL, "validation": NONE, **changes})
    return log, settings, build_sets(log, settings)


def by_query(log, pairs):
    found: dict[str, list[str]] = {}
    for query, document in zip(*pairs, strict=True):
        found.setdefault(log.keys[query].as_py(), []).append(log.documents[document].as_py())
    return found


def test_hand_made_log_gives_expected_clusters_positives_and_negatives():
    log = make_log(HAND)
    settings = make_settings(negatives=2)
    query_hashes, document_hashes = (text_hashes(ids.to_pylist(), 0) for ids in (log.keys, log.documents))
    relevant = relevant_pairs(log, query_hashes, document_hashes, settings)
    clusters = cluster_queries(
        relevant.query, relevant.document, len(log.keys), max_document_queries=9, max_cluster_queries=9
    )
    assert log.keys.to_pylist() == ["car", "red car", "red leather", "red shoes", "shoes"]
    assert clusters.of_query.tolist() == [0, 0, 1, 2, 2]
    clicked = ClickedTexts.of(log, clusters)
    builder = SetBuilder(log, relevant, clusters, clicked, query_hashes, document_hashes, settings)
    found = builder.build(np.ones(5, bool), np.zeros(5, bool), None)
    # "red car" has no document of another cluster with both words; "red leather" only s1, which has the text of x1.
    assert found.counts["dropped_candidates"] == {"no_negatives": 2}
    assert by_query(log, found.negatives) == {"car": ["s2"], "red shoes": ["c1"], "shoes": ["c1"]}
    assert found.negative_ratio.tolist() == [1.0, 1.0, 1.0]
    positives = by_query(log, found.positives)
    assert positives.pop("red shoes") in (["s1", "s2", "s3"], ["s1", "s3", "s2"])  # a tie; s4 is the fourth
    assert positives == {"car": ["c1"], "shoes": ["s1", "s2"]}
    assert (found.ratio.tolist(), sorted(found.third.tolist())) == ([1.0, 1.0, 1.0], [0, 1, 2])
    # c2 is a positive of a query that was not drawn; x1 has a text that a drawn query clicked.
    assert [log.documents[d].as_py() for d in found.corpus] == ["c1", "c2", "s1", "s2", "s3"]
    assert found.counts["distractors_excluded_as_clicked"] == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_sets_equal_those_of_a_slow_reference(seed, share):
    split = {"queries": 2, "distractors": 1}
    changes = {
        "test": split,
        "validation": split,
        "max_cluster_share": share,
        "seed": seed,
        "negatives": 3,
        "min_clicks": 2,
    }
    log, settings, found = build(random_rows(seed), **changes)
    total = 0
    for name, role, other in (("test", 1, 3), ("validation", 2, 4)):
        one = found.sets[name]
        expected = reference(log, settings, found, found.roles == role, found.roles == other)
        assert {log.keys[q].as_py() for q in one.queries} <= expected.keys()
        total += len(one.queries)
        positives, negatives = by_query(log, one.positives), by_query(log, one.negatives)
        for query, ratio in zip(one.queries.tolist(), one.ratio.tolist(), strict=True):
            key = log.keys[query].as_py()
            assert (positives[key], negatives[key], ratio) == expected[key]
        sizes = np.bincount(one.third, minlength=3)
        assert sizes.tolist() == [len(expected) // 3] * 3
        corpus = {log.documents[d].as_py() for d in one.corpus}
        assert {d for documents in (*positives.values(), *negatives.values()) for d in documents} <= corpus
    assert total


def reference(log, settings, found, candidates, distractors):
    """Key -> (positives, negatives, ratio) of every candidate that has both, with dictionaries and sets."""
    keys, ids = log.keys.to_pylist(), log.documents.to_pylist()
    titles = dict(zip(ids, log.titles.to_pylist(), strict=True))
    words = {doc_id: set(distinct_words(title)) for doc_id, title in titles.items()}
    text = {doc_id: normalized(title) for doc_id, title in titles.items()}
    query_hash = dict(zip(keys, text_hashes(keys, settings.seed), strict=True))
    doc_hash = dict(zip(ids, text_hashes(ids, settings.seed), strict=True))
    cluster = dict(zip(keys, found.clusters.of_query.tolist(), strict=True))
    clicks: dict[str, dict[str, int]] = {key: {} for key in keys}
    for q, d, number in zip(log.pair_query, log.pair_document, log.clicks, strict=True):
        clicks[keys[q]][ids[d]] = int(number)

    def tie(key, doc_id):
        return int(mix(np.array([doc_hash[doc_id]]), int(query_hash[key]))[0])

    relevant = {
        key: sorted((d for d, n in clicks[key].items() if n >= 2), key=lambda d: (-clicks[key][d], tie(key, d), d))
        for key in keys
    }
    asked = [key for key, chosen in zip(keys, candidates, strict=True) if chosen]
    of_candidates = {text[d] for key in asked for d in clicks[key]}
    pool = {d for key in asked for d in relevant[key][:3]} | {
        d
        for key, chosen in zip(keys, distractors, strict=True)
        for d in relevant[key]
        if chosen and text[d] not in of_candidates
    }
    sets = {}
    for key in asked:
        own = {text[d] for other in keys if cluster[other] == cluster[key] for d in clicks[other]}
        terms = set(distinct_words(key))
        ratio = {d: len(terms & words[d]) / len(terms) for d in titles}
        negatives = [d for d in pool if ratio[d] > settings.negative_ratio and text[d] not in own]
        negatives.sort(key=lambda d: (-ratio[d], tie(key, d), d))
        if negatives:
            positives = relevant[key][:3]
            sets[key] = positives, negatives[: settings.negatives], max(ratio[d] for d in positives)
    return sets


def test_order_of_rows_does_not_change_the_sets():
    rows = random_rows(7)
    first = build(rows)[2]
    random.Random(1).shuffle(rows)
    second = build(rows)[2]
    assert np.array_equal(first.roles, second.roles)
    assert first.counts == second.counts
    for name, one in first.sets.items():
        assert np.array_equal(one.negatives[1], second.sets[name].negatives[1])
        assert np.array_equal(one.corpus, second.sets[name].corpus)


def test_corpus_has_no_clicked_text_that_is_not_judged():
    split = {"queries": 2, "distractors": 2, "drawn": 6}
    log, _, found = build(random_rows(3), test=split, validation=split)
    one = found.sets["test"]
    drawn = set(one.queries.tolist())
    clicked = {int(d) for q, d in zip(log.pair_query, log.pair_document, strict=True) if q in drawn}
    judged = {*one.positives[1].tolist(), *one.negatives[1].tolist()}
    assert not (set(one.corpus.tolist()) - judged) & clicked
    assert one.counts["distractor_documents"] == len(set(one.corpus.tolist()) - judged) > 0


def test_training_has_the_other_queries_and_may_have_the_documents_of_the_sets():
    found = build(random_rows(5), max_cluster_share=0.5)[2]
    used = {*found.sets["test"].removed.tolist(), *found.sets["validation"].removed.tolist()}
    trained = set(found.training[0].tolist())
    assert trained
    assert not trained & used
    assert trained | used == set(np.flatnonzero(found.roles >= 0).tolist())
    assert set(found.training[1].tolist()) & set(found.sets["test"].corpus.tolist())


def test_queries_without_a_given_cluster_are_trained_on():
    rows = [row._replace(cluster="c") for row in HAND]
    rows += [click(f"alone {number}", f"a{number}", "boots", 4) for number in range(3)]
    log, _, found = build(rows, columns={"cluster": "cluster"})
    trained = {log.keys[query].as_py() for query in found.training[0]}
    assert trained == {"alone 0", "alone 1", "alone 2"}
    assert found.counts["clusters"]["queries_without_cluster"] == 3
    assert found.counts["training"] == {"queries": 3, "pairs": 3}
