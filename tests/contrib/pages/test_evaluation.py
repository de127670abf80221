"""The page of an evaluation."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lsr_prod.errors import ConfigError
from lsr_prod_contrib.pages import write_page
from lsr_prod_contrib.pages.evaluation import evaluation_page
from lsr_prod_contrib.pages.write import page_json, render_page
from tests.contrib.pages.browser import opened, problems_of
from tests.contrib.pages.results import evaluation_result

HOSTILE = "<img src=x onerror=alert(1)></script>"


def test_systems_are_sorted_by_the_measure_and_marked_against_the_baseline() -> None:
    data = evaluation_page(evaluation_result(200)).data
    values = [one["measures"]["nDCG@10"]["value"] for one in data["systems"]]
    assert values == sorted(values, reverse=True)
    marks = {one["name"]: one["measures"]["nDCG@10"]["mark"] for one in data["systems"]}
    assert marks["hybrid"] == "better"
    assert marks["bm25"] == ""


def test_other_measure_sorts_and_draws_by_it() -> None:
    result = evaluation_result(50)
    page = evaluation_page(result, measure="RR@10")
    wins = page.data["queries_of"][0]["wins"]
    system = page.data["queries_of"][0]["system"]
    by_name = {one["name"]: one["by_query"]["RR@10"] for one in result["systems"]}
    differences = [after - before for after, before in zip(by_name[system], by_name["bm25"], strict=True)]
    assert wins[0]["difference"] == pytest.approx(max(differences))
    assert wins[0]["text"] == result["query_texts"][differences.index(max(differences))]
    assert page.charts["measure"].title.startswith("RR@10")


def test_unknown_measure_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'P@1' was not measured; give one of nDCG@10, RR@10"):
        evaluation_page(evaluation_result(5), measure="P@1")


def test_evaluation_without_systems_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the evaluation has no system; give the result of a finished evaluation"):
        evaluation_page({**evaluation_result(5), "systems": []})


@pytest.mark.long
def test_result_in_the_first_form_without_version_intervals_and_curve_has_a_page() -> None:
    result = evaluation_result(20)
    for key in ("version", "baseline", "significance", "correction"):
        del result[key]
    for system in result["systems"]:
        system["intervals"] = {}
    result["efficiency"]["postings"]["curve"] = []
    del result["efficiency"]["by_query"]
    assert "bm25" in render_page(evaluation_page(result))


def test_single_system_has_a_page_without_comparisons() -> None:
    result = evaluation_result(20)
    result["systems"], result["comparisons"] = result["systems"][:1], []
    assert "There is only one system." in render_page(evaluation_page(result))


def test_page_of_many_queries_keeps_those_with_the_largest_differences() -> None:
    page = evaluation_page(evaluation_result(7_000, text="q" * 300))
    html = render_page(page)
    assert len(html.encode()) < 5_000_000
    chart = page.charts[page.data["queries_of"][0]["chart"]]
    assert len(chart.rows) < 7_000
    assert re.search(r"of the 1,333 of 7,000 queries with the largest differences", chart.description)
    kept = min(abs(row["difference"]) for row in chart.rows)
    assert kept == abs(chart.rows[-1]["difference"])
    assert len(page_json(page)) < 5_000_000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tmp_path_factory.mktemp("evaluation"), evaluation_page(evaluation_result(60, text=HOSTILE)))[0]


@pytest.mark.long
def test_page_is_accessible_printable_and_quiet(browser: Browser, file: str) -> None:
    assert problems_of(browser, file) == []


@pytest.mark.long
def test_point_of_a_query_shows_its_text(browser: Browser, file: str) -> None:
    content = json.loads(Path(file).with_suffix(".json").read_text())
    chart = content["data"]["queries_of"][0]["chart"]
    with opened(browser, file) as (page, problems):
        marks = page.locator(f"figure[data-chart={chart}] svg .mark-symbol path")
        assert marks.count() == 60
        marks.last.hover(force=True)
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert HOSTILE in page.locator("#vg-tooltip-element").inner_text()
        assert page.locator("table a, img").count() == 0
        assert problems == []
