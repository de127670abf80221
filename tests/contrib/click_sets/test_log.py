import random
from collections import Counter

import numpy as np

from lsr_prod_contrib.click_sets import log as module
from lsr_prod_contrib.click_sets.log import LogBuilder
from tests.contrib.click_sets.logs import click, make_log, random_rows


def content(log):
    columns = [log.keys, log.queries, log.clusters, log.documents, log.titles, log.texts]
    arrays = [log.pair_query, log.pair_document, log.clicks, log.impressions]
    return [column.to_pylist() for column in columns], [array.tolist() for array in arrays]


def test_log_equals_dictionaries_of_its_rows():
    rows = random_rows(1)
    log = make_log(rows)
    clicks = Counter((row.key, row.document) for row in rows)
    pairs = [
        (log.keys[q].as_py(), log.documents[d].as_py()) for q, d in zip(log.pair_query, log.pair_document, strict=True)
    ]
    assert dict(zip(pairs, log.clicks.tolist(), strict=True)) == clicks
    assert pairs == sorted(pairs)
    assert log.documents.to_pylist() == sorted({row.document for row in rows})
    assert {row.document: row.title for row in rows} == dict(
        zip(log.documents.to_pylist(), log.titles.to_pylist(), strict=True)
    )


def test_order_of_rows_and_size_of_batches_do_not_change_a_log(monkeypatch):
    rows = random_rows(2)
    rows += [click("Same", "d0", f"title {number}", cluster=f"c{number % 2}") for number in range(5)]
    expected = content(make_log(rows))
    monkeypatch.setattr(module, "_BATCH_ROWS", 7)
    monkeypatch.setattr(module, "_MERGE_ROWS", 20)
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        assert content(make_log(rows)) == expected


def test_spelling_text_and_cluster_that_win_do_not_depend_on_order():
    rows = [
        click("Red Shoes", "d", "b", cluster="y"),
        click("red shoes", "d", "a", cluster="x"),
        click("red  SHOES", "d", "a"),
        click("Red Shoes", "e", "z"),
    ]
    log = make_log(rows)
    assert log.queries.to_pylist() == ["Red Shoes"]
    assert log.titles.to_pylist() == ["a", "z"]
    assert log.clusters.to_pylist() == ["x"]
    assert (log.several_texts, log.several_clusters) == (1, 1)
    assert log.clicks.tolist() == [3, 1]


def test_rows_that_are_no_clicks_are_skipped_and_counted():
    builder = LogBuilder(max_position=10)
    for row in (click("a", "d", "t", 0), click("b", "d", "t", position=11), click("c", "d", "t", position=10)):
        builder.add(row)
    assert (builder.used, dict(builder.skipped)) == (1, {"no_clicks": 1, "low_position": 1})
    assert builder.log().keys.to_pylist() == ["c"]


def test_impressions_of_rows_without_clicks_are_added_up(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    rows = [
        click("one", "a", "t", 0, impressions=990),
        click("one", "a", "t", 2, impressions=10),
        click("one", "b", "t", 0, impressions=50),
        click("two", "a", "t", 0, impressions=7),
    ]
    builder = LogBuilder(None)
    for row in rows:
        builder.add(row)
    log = builder.log()
    assert (builder.used, dict(builder.skipped)) == (1, {"no_clicks": 3})
    assert (log.keys.to_pylist(), log.documents.to_pylist()) == (["one"], ["a"])
    assert (log.clicks.tolist(), log.impressions.tolist()) == ([2], [1000])


def test_impressions_below_the_last_position_are_not_added_up():
    rows = [click("one", "a", "t", 2, impressions=10), click("one", "a", "t", 0, impressions=990, position=11)]
    assert make_log(rows, max_position=10).impressions.tolist() == [10]


def test_log_without_rows_is_empty():
    log = LogBuilder(None).log()
    assert (len(log.keys), len(log.documents), len(log.pair_query)) == (0, 0, 0)
    assert log.clicks.dtype == np.int64
