"""The page of a query: its data against the searcher, and the slider in a browser."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lsr_prod.search import Hybrid, Searcher
from lsr_prod_contrib.pages import write_page
from lsr_prod_contrib.pages.query import pieces, query_data, query_page
from tests.contrib.pages.browser import opened, problems_of
from tests.indexing.corpus import Doc, encode_corpus, make_index
from tests.search.conftest import TEXTS

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> a thread waits for a lock"
QUERY = "thread waits for a lock"


@pytest.fixture(scope="module")
def index(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real texts with words, and a document whose text and id are markup."""
    folder = tmp_path_factory.mktemp("pages") / "index"
    texts = TEXTS | {"<b>bold</b>": HOSTILE}
    make_index(folder, encode_corpus(tiny_bundle, texts), bundle=tiny_bundle, bm25=True, shards=2)
    return folder


@pytest.fixture(scope="module")
def searcher(index: Path) -> Searcher:
    return Searcher.open(index)


@pytest.fixture(scope="module")
def data(searcher: Searcher) -> dict[str, object]:
    return query_data(searcher, QUERY, k=4)


def test_ranks_are_those_of_a_search_with_the_threshold(searcher: Searcher) -> None:
    data = query_data(searcher, QUERY, k=4)
    for threshold in data["thresholds"]:
        required = threshold["required"]
        result = searcher.search(QUERY, 4, min_terms=required, count=True)
        ranked = {hit["doc_id"]: hit["ranks"][required - 1] for hit in data["hits"] if hit["ranks"][required - 1]}
        assert ranked == {hit.doc_id: rank for rank, hit in enumerate(result.hits, 1)}
        assert threshold["matched"] == result.matched
    assert len(data["thresholds"]) > 2
    assert data["thresholds"][0]["matched"] > data["thresholds"][-1]["matched"]


@pytest.mark.parametrize("hybrid", [None, Hybrid(words=0.5)])
def test_contributions_add_up_to_the_score_of_the_search(searcher: Searcher, hybrid: Hybrid | None) -> None:
    data = query_data(searcher, QUERY, k=4, hybrid=hybrid)
    found = searcher.search(QUERY, 4, hybrid=hybrid).hits
    assert [hit["doc_id"] for hit in data["hits"][:4]] == [hit.doc_id for hit in found]
    for hit, expected in zip(data["hits"], found, strict=False):
        assert hit["score"] == pytest.approx(expected.score, rel=1e-6)
        assert sum(part["score"] for part in hit["contributions"]) == pytest.approx(expected.score, rel=1e-5)
    words = {part["term"] for hit in data["hits"] for part in hit["contributions"] if part["field"] == "text"}
    assert bool(words) == (hybrid is not None)


def test_lists_have_rank_and_score_of_each_hit(searcher: Searcher) -> None:
    data = query_data(searcher, QUERY, k=2)
    for rank, hit in enumerate(searcher.bm25(QUERY, 2).hits, 1):
        shown = next((one for one in data["hits"] if one["doc_id"] == hit.doc_id), None)
        if shown is not None:
            assert shown["lists"]["BM25"] == {"rank": rank, "score": hit.score}
    assert data["hits"][0]["lists"]["sparse"]["rank"] == 1


def test_index_without_words_has_no_lists(tmp_path: Path, tiny_bundle: Path) -> None:
    make_index(tmp_path / "index", {"a": Doc({2000: 5}, "a text")}, bundle=tiny_bundle)
    with Searcher.open(tmp_path / "index") as searcher:
        data = query_data(searcher, "xyzzy", k=3)
    assert data["lists"] == []
    assert "Sparse and BM25" not in json.dumps(data)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ((), [("abcdef", False)]),
        (((0, 2), (4, 6)), [("ab", True), ("cd", False), ("ef", True)]),
        (((1, 2),), [("a", False), ("b", True), ("cdef", False)]),
    ],
)
def test_pieces_join_to_the_text(spans: tuple[tuple[int, int], ...], expected: list[tuple[str, bool]]) -> None:
    assert [(piece["text"], piece["marked"]) for piece in pieces("abcdef", spans, 6)] == expected


def test_long_text_is_cut_and_a_highlight_across_the_cut_left_out() -> None:
    assert [piece["text"] for piece in pieces("abcdef", ((0, 1), (2, 5)), characters=3)] == ["a", "bc…"]


@pytest.fixture(scope="module")
def file(searcher: Searcher, tmp_path_factory: pytest.TempPathFactory) -> str:
    data = query_data(searcher, QUERY, k=4, hybrid=Hybrid())
    assert any(hit["doc_id"] == "<b>bold</b>" for hit in data["hits"])
    return write_page(tmp_path_factory.mktemp("query"), query_page(data))[0]


@pytest.mark.long
def test_page_is_accessible_printable_and_quiet(browser: Browser, file: str) -> None:
    assert problems_of(browser, file) == []


@pytest.mark.long
def test_page_without_hits_is_accessible_printable_and_quiet(
    browser: Browser, searcher: Searcher, tmp_path: Path
) -> None:
    data = {**query_data(searcher, QUERY, k=1), "hits": [], "terms": [], "thresholds": [], "lists": []}
    assert problems_of(browser, write_page(tmp_path, query_page(data))[0]) == []


@pytest.mark.long
def test_slider_moved_by_keyboard_changes_the_hits(browser: Browser, file: str) -> None:
    data = json.loads(Path(file).with_suffix(".json").read_text())["data"]
    with opened(browser, file) as (page, problems):
        slider = page.get_by_label("Query terms that a document must share")
        slider.focus()
        for required in range(1, len(data["thresholds"]) + 1):
            if required > 1:
                page.keyboard.press("ArrowRight")
            ranks = {hit["doc_id"]: hit["ranks"][required - 1] for hit in data["hits"]}
            shown = sorted((rank, doc_id) for doc_id, rank in ranks.items() if rank is not None)
            assert page.locator("#hit-list > li:visible h3").all_inner_texts() == [f"{r} {i}" for r, i in shown]
            matched = data["thresholds"][required - 1]["matched"]
            assert page.locator("#outcome").inner_text().startswith(f"{matched} document")
            gone = [hit["doc_id"] for hit in data["hits"] if hit["ranks"][0] and hit["ranks"][required - 1] is None]
            assert page.locator("#dropped-list > li").count() == len(gone)
        assert page.locator("#dropped").is_visible()
        page.keyboard.press("Home")
        assert not page.locator("#dropped").is_visible()
        assert problems == []


def test_words_of_the_query_are_highlighted(browser: Browser, file: str) -> None:
    with opened(browser, file) as (page, _):
        marked = {text.lower() for text in page.locator("#hit-list mark").all_inner_texts()}
    assert {"thread", "lock"} <= marked
