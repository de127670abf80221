"""The API and the search page of the example backend, with two publications of an index and hostile texts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from lsr_prod.search import Hybrid, Searcher, field
from tests.contrib.pages.browser import chromium, violations, wider_than_window
from tests.indexing.corpus import Doc, encode_corpus, make_index

FOLDER = Path(__file__).parents[2] / "examples" / "backend"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202ea lock </mark> &amp; 😀 lock"
TEXTS = {
    "lock": "a lock is held by one thread while another thread waits for it",
    "hostile": HOSTILE,
    "json": "parse a string of json",
    "root": "square root of a number",
    "long": "word " * 300 + "a lock at the end of a long text " + "word " * 300,
    "<b>id</b>": "a thread takes the lock",
}
FACTS: dict[str, dict[str, Any]] = {
    name: {"lang": "de" if place % 2 else "en", "year": str(2018 + place)} for place, name in enumerate(TEXTS)
}
ATTRIBUTES: Any = {"lang": "string", "year": "int64"}
QUERY = "a lock is held by one thread"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Publication 1 has all documents, publication 2 lacks one and gives another the vector of a third."""
    folder = tmp_path_factory.mktemp("page") / "docs"
    encoded = encode_corpus(tiny_bundle, TEXTS)
    corpus = {
        name: Doc(doc.terms, doc.text, {"title": f"About {name}", **FACTS[name]}) for name, doc in encoded.items()
    }
    make_index(folder, corpus, bundle=tiny_bundle, bm25=True, attributes=ATTRIBUTES)
    changed = {**corpus, "root": Doc(corpus["lock"].terms, TEXTS["root"], corpus["root"].stored)}
    del changed["<b>id</b>"]
    make_index(folder, changed, bundle=tiny_bundle, bm25=True, attributes=ATTRIBUTES)
    return folder


@pytest.fixture(scope="module")
def server(index: Path) -> Iterator[str]:
    """Address of the backend: side A at publication 1, side B at the current one."""
    pytest.importorskip("uvicorn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"},
        "PYTHONPATH": str(FOLDER.parents[1]),
        "LSR_INDEX": f"{index}@1",
        "LSR_INDEX_B": str(index),
        "LSR_DEADLINE_MS": "60000",  # the first search on a busy machine may need more than a second
    }
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning"]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, cwd=FOLDER, env=environment) as process:
        try:
            end = time.monotonic() + 120
            while not answers(address):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def answers(address: str) -> bool:
    try:
        return bool(get(address, "/health"))
    except OSError:
        return False


def get(address: str, path: str, **parameters: Any) -> Any:
    with urllib.request.urlopen(f"{address}{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def searcher(index: Path) -> Iterator[Searcher]:
    with Searcher.open(index, publication=1) as opened:
        yield opened


def ids(answer: Any) -> list[str]:
    return [hit["doc_id"] for hit in answer["hits"]]


@pytest.mark.long
def test_index_describes_both_sides_without_their_place(server, index):
    found = get(server, "/index")
    assert [(found[side]["publication"], found[side]["documents"]) for side in ("a", "b")] == [(1, 6), (2, 5)]
    assert (found["a"]["name"], found["b"]["name"]) == ("docs@1", "docs")
    assert found["a"]["attributes"] == ATTRIBUTES
    assert found["a"]["hybrid"] is True
    assert str(index.parent) not in json.dumps(found)


def test_search_equals_the_library(server, searcher):
    language = {"field": "lang", "op": "eq", "value": "en"}
    options = {"threshold": 0.3, "min_terms": 2, "hybrid": True, "filter": json.dumps(language)}
    found = get(server, "/search", q=QUERY, k=3, **options)
    same = searcher.search(QUERY, 3, overlap_threshold=0.3, min_terms=2, hybrid=Hybrid(), filter=field("lang") == "en")
    assert [(hit["doc_id"], hit["score"], hit["overlap"]) for hit in found["hits"]] == [
        (hit.doc_id, hit.score, hit.overlap) for hit in same.hits
    ]
    assert [tuple(term.values()) for term in found["terms"]] == [tuple(term) for term in same.query]
    assert (found["required"], found["matched"], found["version"]) == (same.required, same.matched, same.version)
    assert found["hits"][0]["texts"] == []
    assert found["total_ms"] >= found["match_ms"]


def test_texts_are_pieces_with_marks_around_the_first_one(server):
    found = {hit["doc_id"]: hit for hit in get(server, "/search", q="lock", k=10, texts=True, hybrid=True)["hits"]}
    text = {each["name"]: each for each in found["hostile"]["texts"]}["text"]
    assert "".join(part["text"] for part in text["parts"]) == HOSTILE
    assert [part["text"] for part in text["parts"] if part["mark"]] == ["lock", "lock"]
    long = {each["name"]: each for each in found["long"]["texts"]}["text"]
    whole = "".join(part["text"] for part in long["parts"])
    assert long["cut"] is True
    assert len(whole) < 410
    assert whole.startswith("… word")
    assert whole.endswith(" …")
    assert "lock" in [part["text"] for part in long["parts"] if part["mark"]]
    assert found["lock"]["attributes"] == {"lang": "en", "year": 2018}


def test_facets_are_counted_for_strings_only(server):
    (facet,) = get(server, "/search", q="lock", k=1, facets=True)["facets"]
    assert facet["name"] == "lang"
    assert sum(count for _, count in facet["values"]) + facet["missing"] > 0


def test_explanation_adds_up_to_the_score_of_each_side(server):
    for side in ("a", "b"):
        hit = get(server, "/search", q=QUERY, side=side, hybrid=True)["hits"][0]
        found = get(server, "/explain", q=QUERY, doc_id=hit["doc_id"], side=side, hybrid=True)
        assert found["score"] == hit["score"]
        assert sum(each["score"] for each in found["contributions"]) == pytest.approx(hit["score"], rel=1e-5)
        scores = [each["score"] for each in found["contributions"]]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("path", "parameters", "status", "text"),
    [
        ("/search", {"q": "x", "filter": "{"}, 400, "filter is not JSON"),
        ("/search", {"q": "x", "filter": "[" * 10_000}, 400, "filter is not JSON"),
        ("/search", {"q": "x", "filter": '{"field": "size", "op": "eq", "value": 1}'}, 400, "size"),
        ("/search", {"q": "x", "k": 101}, 422, "less than or equal to 100"),
        ("/search", {"q": "x", "threshold": "nan"}, 422, "less than or equal to 1"),
        ("/search", {"q": "x", "side": "c"}, 422, "'a' or 'b'"),
        ("/explain", {"q": "x", "doc_id": "nothing"}, 400, "there is no document"),
        ("/docs", {}, 404, "Not Found"),
    ],
)
def test_impossible_requests_are_refused_with_a_sentence(server, path, parameters, status, text):
    with pytest.raises(urllib.error.HTTPError) as failed:
        get(server, path, **parameters)
    with failed.value as answer:
        assert answer.code == status
        assert text in answer.read().decode()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_page_and_static_files_allow_no_inline_script_and_no_other_host(server):
    for path in ("/", "/static/search.js", "/static/search.css"):
        with urllib.request.urlopen(f"{server}{path}", timeout=30) as answer:
            policy = answer.headers["Content-Security-Policy"]
            text = answer.read().decode()
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def opened(browser: Browser, server: str, **settings: Any) -> Iterator[tuple[Page, list[str]]]:
    """The search page, and the list to which messages, errors, dialogs and requests of other hosts are added."""
    context = browser.new_context(**settings)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda each: None if each.url.startswith((server, "data:")) else problems.append(each.url))
    page.goto(server)
    expect(page.locator("#about")).to_contain_text("6 documents")
    yield page, problems
    context.close()


@pytest.fixture
def page(browser: Browser, server: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The search page without problems."""
    with opened(browser, server, **getattr(request, "param", {})) as (page, problems):
        yield page
    assert problems == []


def test_typing_shows_hits_with_marks_terms_and_timing(page: Page, searcher: Searcher) -> None:
    page.locator("#q").press_sequentially(QUERY, delay=5)
    expect(page.locator("#results")).to_have_attribute("data-query", QUERY)
    expected = [hit.doc_id for hit in searcher.search(QUERY).hits]
    assert page.locator(".hit .head > .muted").all_inner_texts() == expected
    assert page.locator(".hit mark", has_text="lock").count() >= 4
    assert page.locator(".terms li").count() == len(searcher.search(QUERY).query)
    expect(page.locator("#status")).to_contain_text("encode")
    assert page.url.endswith("q=a+lock+is+held+by+one+thread")
    assert page.locator("script:not([src]), .hit img, .hit script, .hit b").count() == 0  # texts are no markup
    page.locator(".hit summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".hit table").first).to_contain_text("the sum of")
    assert violations(page) == []


@pytest.mark.long
def test_filter_and_hybrid_change_the_hits_and_a_restored_address_shows_them(page: Page, searcher: Searcher) -> None:
    page.locator("#q").fill(QUERY)
    page.locator("#filters summary").click()
    german = page.get_by_role("checkbox", name="de")
    german.check()
    expect(page.locator("#active")).to_have_text("(1 active)")
    expected = [hit.doc_id for hit in searcher.search(QUERY, filter=field("lang").is_in(["de"])).hits]
    expect(page.locator(".hit .head > .muted")).to_have_text(expected)
    page.get_by_role("spinbutton", name="from").fill("2021")
    both = field("lang").is_in(["de"]) & (field("year") >= 2021)
    expect(page.locator(".hit .head > .muted")).to_have_text(
        [hit.doc_id for hit in searcher.search(QUERY, filter=both).hits]
    )
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator("#active")).to_have_text("")
    page.locator("#hybrid").check()
    words = [hit.doc_id for hit in searcher.search(QUERY, hybrid=Hybrid()).hits]
    expect(page.locator(".hit .head > .muted")).to_have_text(words)
    page.reload()
    expect(page.locator("#hybrid")).to_be_checked()
    expect(page.locator(".hit .head > .muted")).to_have_text(words)


@pytest.mark.long
@pytest.mark.parametrize("page", [{"viewport": {"width": 375, "height": 800}, "color_scheme": "dark"}], indirect=True)
def test_two_versions_on_a_phone_name_new_and_lost_hits(page: Page) -> None:
    page.locator("#q").fill(QUERY)
    page.locator("#compare").check()
    expect(page.locator("section")).to_have_count(2)
    a, b = page.locator("section").all()
    expect(a.locator(".hit", has_text="<b>id</b>").locator(".move")).to_have_text("− not in B")
    expect(b.locator(".hit", has_text="About root").locator(".move")).to_contain_text("rank")
    expect(page.locator("#status")).to_contain_text("hits of A are hits of B")
    assert not wider_than_window(page)
    assert violations(page) == []


def test_newer_query_replaces_the_answer_of_an_older_one(page: Page) -> None:
    held: list[Any] = []
    page.route("**/search?q=json*", lambda route: held.append(route))  # never answered
    page.locator("#q").fill("json")
    page.keyboard.press("Enter")
    page.wait_for_timeout(50)
    page.locator("#q").fill("lock")
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_have_attribute("data-query", "lock")
    assert len(held) == 1
    expect(page.locator("#error")).to_be_hidden()


def test_empty_query_and_empty_result_are_said_and_a_slash_leads_to_the_query(page: Page) -> None:
    page.locator("#q").fill("lock")
    expect(page.locator(".hit")).not_to_have_count(0)
    page.locator("#filters summary").click()
    page.get_by_role("spinbutton", name="from").fill("3000")
    expect(page.locator("#results")).to_contain_text("No document matches.")
    page.locator("#q").fill("")
    expect(page.locator("#results")).to_be_empty()
    page.locator("#threshold").focus()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()


def test_failures_are_said_and_the_next_search_works(browser: Browser, server: str) -> None:
    refusal = {"status": 503, "json": {"detail": "too many requests wait"}}
    with opened(browser, server) as (page, problems):
        page.route("**/search?q=lost*", lambda route: route.abort())
        page.route("**/search?q=busy*", lambda route: route.fulfill(**refusal))
        page.locator("#q").fill("lost")
        expect(page.get_by_role("alert")).to_have_text("The server does not answer. Try again.")
        page.locator("#q").fill("busy")
        expect(page.get_by_role("alert")).to_have_text("too many requests wait")
        assert violations(page) == []
        page.locator("#q").fill("lock")
        expect(page.locator(".hit")).not_to_have_count(0)
        expect(page.locator("#error")).to_be_hidden()
    assert all("Failed to load resource" in problem for problem in problems)  # Chromium reports each failed request
