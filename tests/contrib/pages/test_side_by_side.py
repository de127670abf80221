"""The side-by-side page: moves by hand, and filter and order in a browser."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from lsr_prod.jobs.command import main
from lsr_prod_contrib.pages import write_page
from lsr_prod_contrib.pages.side_by_side import side_by_side_page
from tests.contrib.pages.browser import opened, problems_of

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def hits(*ids: str) -> list[dict[str, Any]]:
    return [{"doc_id": doc_id, "rank": rank, "score": 9.5 - rank} for rank, doc_id in enumerate(ids, 1)]


def row(query_id: str, text: str, change: float, a: list[Any], b: list[Any], *values: float | None) -> dict[str, Any]:
    value_a, value_b = values or (None, None)
    shares = {"overlap": 0.5, "change": change}
    return {"query_id": query_id, "text": text, **shares, "value_a": value_a, "value_b": value_b, "a": a, "b": b}


@pytest.fixture
def canary() -> dict[str, Any]:
    """A comparison in the smallest form that the page reads, and its optional fields."""
    rows = [
        row("q1", "how locks work", 0.2, hits("d1", "d2", "d3"), hits("d1", "d3", "d4"), 0.5, 1.0),
        row("q2", "parse json", 0.9, hits("d5", "d6"), hits("d7"), 1.0, 0.0),
        row("q10", HOSTILE, 0.0, hits("d8", HOSTILE), hits("d8", HOSTILE), 0.5, 0.5),
        row("q3", "nothing at all", 0.0, [], []),
    ]
    figures = {"publication": 1, "version": "f" * 64, "documents": 8, "matched": 3.5}
    return {
        "a": "index@1",
        "b": f"index {HOSTILE}",
        "k": 3,
        "queries": 4,
        "overlap": 0.6,
        "wins": 1,
        "losses": 1,
        "ties": 1,
        "rows": rows,
        "terms": [
            {"term": "lock", "weight_a": 1.0, "weight_b": 0.25, "drift": -0.75},
            {"term": HOSTILE, "weight_a": 0.0, "weight_b": 0.5, "drift": 0.5},
        ],
        "document_terms": [
            {"term": "json", "share_a": 0.5, "share_b": 0.25, "weight_a": 1.0, "weight_b": None, "drift": -0.25}
        ],
        "sides": {"a": figures, "b": {**figures, "publication": 2}},
        "documents": {"d1": "a lock is held", "d7": HOSTILE, "d6": "word " * 60},
        "measure": "nDCG@3",
        "mean_a": 0.6667,
        "mean_b": 0.5,
    }


def labels(page_row: dict[str, Any], side: str) -> list[str]:
    return [pair[side]["label"] for pair in page_row["pairs"] if pair[side]]


def test_moves_are_named_from_both_sides(canary: dict[str, Any]) -> None:
    rows = {each["query_id"]: each for each in side_by_side_page(canary).data["rows"]}
    assert labels(rows["q1"], "a") == ["= same rank", "− not in B", "▲ rank 2 in B"]
    assert labels(rows["q1"], "b") == ["= same rank", "▲ rank 3 in A", "+ new in B"]
    assert (rows["q1"]["new"], rows["q1"]["left"], rows["q1"]["moved"]) == (1, 1, 1)
    assert [pair["b"] is None for pair in rows["q2"]["pairs"]] == [False, True]
    outcomes = {query_id: each["outcome"] for query_id, each in rows.items()}
    assert outcomes == {"q1": "win", "q2": "loss", "q10": "tie", "q3": ""}


def test_rows_are_ordered_by_change_and_cut(canary: dict[str, Any]) -> None:
    assert [each["query_id"] for each in side_by_side_page(canary, rows=2).data["rows"]] == ["q2", "q1"]


def test_optional_fields_may_be_absent(canary: dict[str, Any], tmp_path: Path) -> None:
    needed = ("a", "b", "k", "queries", "overlap", "wins", "losses", "ties", "rows", "terms")
    file = tmp_path / "canary.json"
    small = {**{key: canary[key] for key in needed}, "overlap": None, "terms": []}
    file.write_text(json.dumps(small), encoding="utf-8")
    assert main(["inspect", "side-by-side", str(file), "--output", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "side-by-side.json").read_text(encoding="utf-8"))
    assert written["data"]["sides"] == []
    assert written["charts"] == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "there is nothing to compare"),
        (["FILE", "--a", "x"], "FILE and --a, --b or --queries are given"),
        (["FILE"], "has no a, b"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], options, problem) -> None:
    file = tmp_path / "canary.json"
    file.write_text("{}", encoding="utf-8")
    given = [str(file) if option == "FILE" else option for option in options]
    assert main(["inspect", "side-by-side", *given, "--output", str(tmp_path)]) == 2
    assert problem in capsys.readouterr().err


@pytest.fixture
def file(canary: dict[str, Any], tmp_path: Path) -> str:
    return write_page(tmp_path, side_by_side_page(canary))[0]


@pytest.mark.long
def test_page_is_accessible_printable_and_quiet(browser: Browser, file: str) -> None:
    assert problems_of(browser, file) == []


def test_filter_and_order_show_the_wanted_queries(browser: Browser, file: str) -> None:
    with opened(browser, file) as (page, problems):
        shown = page.locator("#list > li:visible .query")
        assert shown.all_inner_texts()[:2] == ["parse json", "how locks work"]
        page.get_by_label("Order").select_option("win")
        assert shown.all_inner_texts() == ["how locks work", HOSTILE, "parse json", "nothing at all"]
        page.get_by_label("Order").select_option("loss")
        assert shown.all_inner_texts() == ["parse json", HOSTILE, "how locks work", "nothing at all"]
        page.get_by_label("Order").select_option("id")
        assert [text.split(" ")[0] for text in shown.all_inner_texts()] == ["how", "parse", "nothing", "<img"]
        page.get_by_label("Filter").fill("lock is HELD")  # text of a document
        assert shown.all_inner_texts() == ["how locks work"]
        assert page.get_by_role("status").inner_text() == "1 of 4 queries shown, of 4 compared."
        page.get_by_role("button", name="Open all").click()
        table = page.locator("table.pair:visible")
        assert table.locator("tbody tr").count() == 3
        assert table.locator(".move.new").inner_text() == "+ new in B"
        page.get_by_role("button", name="Close all").click()
        assert page.locator("table.pair:visible").count() == 0
        page.locator("#list > li:visible summary").press("Enter")
        assert page.locator("table.pair:visible").count() == 1
        assert problems == []
