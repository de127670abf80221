"""The page of a sweep."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lsr_prod.errors import ConfigError
from lsr_prod_contrib.pages import write_page
from lsr_prod_contrib.pages.sweep import sweep_page
from lsr_prod_contrib.pages.write import page_json, render_page
from tests.contrib.pages.browser import opened, problems_of
from tests.contrib.pages.results import sweep_result

HOSTILE = "<img src=x onerror=alert(1)></script>"


def test_page_of_a_sweep_of_the_planned_size_is_small_and_has_no_values_per_query() -> None:
    page = sweep_page(sweep_result(3, 12, 4, queries=1_000))
    assert len(page.data["points"]) == 288
    assert all("by_query" not in point for point in page.data["points"])
    assert len(render_page(page).encode()) < 2_000_000
    assert len(page_json(page).encode()) < 1_000_000


@pytest.mark.long
def test_page_of_a_large_sweep_draws_the_front_and_the_best_points() -> None:
    result = sweep_result(10, 40, 12, queries=1)
    page = sweep_page(result)
    chart = page.charts["front-0-flops"]
    assert len(chart.rows) == 1_500
    assert "The best 1,500 of 4,800 points" in chart.description
    assert sum(row["front"] for row in chart.rows) == len(result["fronts"]["scifact"]["flops"])
    assert sum(row["chosen"] for row in chart.rows) == 1
    assert len(render_page(page).encode()) < 5_000_000


def test_rows_of_a_chart_are_the_points_of_its_collection() -> None:
    result = sweep_result(2, 3, 2, queries=3)
    page = sweep_page(result)
    chart = page.charts["front-1-match-p50-ms"]
    expected = [point for point in result["points"] if point["collection"] == "msmarco"]
    assert sorted(row["match_p50_ms"] for row in chart.rows) == sorted(point["match_p50_ms"] for point in expected)
    assert {row["dk"] for row in chart.rows} == {"all", 8, 16}


def test_result_with_one_chosen_point_has_a_page() -> None:
    result = sweep_result(1, 2, 1, queries=2)
    del result["chosen"]["points"], result["collections"]
    assert [point["collection"] for point in sweep_page(result).data["chosen_points"]] == ["scifact"]


def test_sweep_without_points_is_an_error() -> None:
    result = {**sweep_result(1, 1, 1, queries=1), "points": []}
    with pytest.raises(ConfigError, match="the sweep has no point; give the result of a finished sweep"):
        sweep_page(result)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tmp_path_factory.mktemp("sweep"), sweep_page(sweep_result(3, 4, 2, queries=2, text=HOSTILE)))[0]


@pytest.mark.long
def test_page_is_accessible_printable_and_quiet(browser: Browser, file: str) -> None:
    assert problems_of(browser, file) == []


def test_page_shows_the_chosen_setting_and_its_patch(browser: Browser, file: str) -> None:
    with opened(browser, file) as (page, problems):
        patch = page.locator("pre").inner_text()
        assert patch.splitlines()[:2] == ["index:", "  dk: 64"]
        assert "qk: null" in patch
        assert page.locator("section").first.locator("tr.chosen").count() == 2
        front = page.locator("figure[data-chart=front-0-flops] svg .mark-line path")
        assert front.count() == 1
        assert problems == []
    assert Path(file).with_suffix(".json").is_file()
