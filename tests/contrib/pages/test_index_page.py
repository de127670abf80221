"""The page of an index, in a browser and against the index."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lsr_prod.indexing import delete_documents
from lsr_prod.jobs.command import main
from lsr_prod.search import Searcher
from tests.contrib.pages.browser import opened, problems_of
from tests.contrib.pages.test_run_pages import HOSTILE
from tests.indexing.corpus import encode_corpus, make_index
from tests.search.conftest import TEXTS


@pytest.fixture(scope="module")
def index(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards, and a second publication with a takedown whose note is hostile."""
    folder = tmp_path_factory.mktemp("page") / "index"
    make_index(folder, encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle, shards=2)
    delete_documents(folder, ["math.sqrt"], note=HOSTILE)
    return folder


@pytest.fixture(scope="module")
def file(index: Path) -> Path:
    assert main(["inspect", "index", str(index), "--fields", "text", "--output", str(index.parent / "pages")]) == 0
    return index.parent / "pages" / "index.html"


@pytest.mark.long
def test_index_page_is_accessible_printable_and_quiet(browser: Browser, file: Path) -> None:
    assert problems_of(browser, file) == []


@pytest.mark.long
def test_index_page_has_the_figures_of_the_index(index: Path, file: Path, browser: Browser) -> None:
    data = json.loads(file.with_suffix(".json").read_text())["data"]
    with Searcher.open(index) as searcher:
        assert data["documents"] == searcher.documents == len(TEXTS) - 1
        assert data["postings_total"] == searcher.postings
        shards = searcher.version.shards
        assert data["bytes"]["impacts"] == sum(shard.bytes_by_part["impacts"] for shard in shards)
        assert data["diagnosis"]["dead"]["terms"] == sum(
            searcher.document_frequency(term) == 0 for term in searcher.vocabulary
        )
    assert (data["tombstones"], data["takedowns"], data["publication"]) == (1, 1, 2)
    assert [row["number"] for row in data["history"]] == [2, 1]
    assert 0 < data["queries"]["p50"] <= data["queries"]["p95"] <= data["postings_total"]
    with opened(browser, file) as (page, _):
        assert page.get_by_text(HOSTILE).count() > 0
        page.get_by_text("All dead terms").click()
        assert page.locator("p.terms code").first.is_visible()


@pytest.mark.long
def test_postings_are_counted_for_given_queries(index: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "1", "text": "lock thread"}\n{"_id": "2", "text": "json string"}\n')
    assert main(["inspect", "index", str(index), "--queries", str(queries), "--output", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "index.json").read_text())["data"]
    assert (data["queries"]["queries"], data["queries"]["source"]) == (2, "given queries")
    with Searcher.open(index) as searcher:
        read = [
            sum(searcher.document_frequency(int(term)) for term in query.ids if term >= 0)
            for query in searcher.encode(["lock thread", "json string"])
        ]
    assert min(read) > 0
    assert (data["queries"]["mean"], data["queries"]["p50"]) == (sum(read) / 2, sum(read) / 2)
    assert data["queries"]["p95"] == pytest.approx(min(read) + 0.95 * (max(read) - min(read)))


def test_invalid_queries_are_refused(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.jsonl").write_text("lock\n")
    assert main(["inspect", "index", str(index), "--queries", str(tmp_path / "queries.jsonl")]) == 1
    assert "queries.jsonl:1 is not a query" in capsys.readouterr().err
