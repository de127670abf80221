from lsr_prod_contrib.click_sets.hashing import text_hashes
from lsr_prod_contrib.click_sets.relevant import relevant_pairs
from tests.contrib.click_sets.logs import click, make_log, make_settings


def relevant(rows, **changes):
    log = make_log(rows)
    hashes = (text_hashes(ids.to_pylist(), 0) for ids in (log.keys, log.documents))
    found = relevant_pairs(log, *hashes, make_settings(columns={"impressions": "shown"}, **changes))
    pairs = zip(found.query, found.document, found.rank, strict=True)
    return [(log.keys[q].as_py(), log.documents[d].as_py(), int(rank)) for q, d, rank in pairs], found


ROWS = [
    click("one", "a", "t", 5, impressions=100),
    click("one", "b", "t", 4, impressions=8),
    click("one", "c", "t", 1, impressions=1),
    click("two", "a", "t", 9, impressions=9),
]


def test_documents_are_ordered_by_clicks_or_by_clicks_per_impression():
    assert relevant(ROWS, min_clicks=2)[0] == [("one", "a", 0), ("one", "b", 1), ("two", "a", 0)]
    assert relevant(ROWS, min_clicks=2, label_score="rate")[0] == [("one", "b", 0), ("one", "a", 1), ("two", "a", 0)]


def test_rate_counts_impressions_of_rows_without_clicks():
    rows = [click("one", "a", "t", clicks, impressions=shown) for clicks, shown in ((2, 10), (0, 990))]
    rows.append(click("one", "b", "t", 5, impressions=100))
    assert [document for _, document, _ in relevant(rows, label_score="rate")[0]] == ["b", "a"]


def test_rate_of_impressions_below_clicks_is_one():
    rows = [click("one", "a", "t", 5, impressions=0), click("one", "b", "t", 1, impressions=2)]
    assert [document for _, document, _ in relevant(rows, label_score="rate")[0]] == ["a", "b"]


def test_queries_with_few_relevant_documents_are_left_out_and_counted():
    pairs, found = relevant(ROWS, min_clicks=2, min_documents=2)
    assert [query for query, _, _ in pairs] == ["one", "one"]
    assert (found.unclicked_enough, found.queries_with_few) == (1, 1)


def test_ties_are_ordered_by_a_hash_of_the_pair():
    rows = [click(f"q{q}", f"d{d}", "t") for q in range(20) for d in range(3)]
    firsts = {document for _, document, rank in relevant(rows)[0] if rank == 0}
    assert firsts == {"d0", "d1", "d2"}
