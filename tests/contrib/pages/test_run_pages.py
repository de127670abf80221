"""The pages of train, encode and index runs, with hostile text in every record, in a browser."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from lsr_prod.jobs.command import main
from lsr_prod_contrib.pages.encode_run import builds_page, encode_page
from lsr_prod_contrib.pages.runs.encoding import describe_encoding
from lsr_prod_contrib.pages.runs.training import describe_training
from lsr_prod_contrib.pages.training_run import training_page
from lsr_prod_contrib.pages.write import page_json, render_page
from tests.contrib.pages.browser import opened, problems_of
from tests.contrib.pages.runs.records import HOSTILE, encode_records, training_records
from tests.quick import first_quick

BUILDS: dict[str, Any] = {
    "index": HOSTILE,
    "builds": [
        {
            "finished_at": f"2026-11-2{number}T01:00:00+00:00", "mode": mode, "reason": HOSTILE,
            "documents": 90 + number, "shards": 2, "shards_reused": number, "upserts": 1, "deletes": 0, "tombstones": 0,
            "documents_rebuilt": 9,
            "bytes_per_doc": 400.5, "bytes_written": 30_000 * number, "seconds": 1.5 * number, "seconds_impacts": 1.0,
            "seconds_tantivy": 0.5, "version": "f" * 64, "publication": number,
        }
        for number, mode in enumerate(("full", "delta"), 1)
    ],
    "shards": [
        {
            "sha": digit * 64, "role": role, "documents": 45, "postings": 900, "bytes": 18_000, "reused": reused,
            "seconds_impacts": 0.5, "seconds_tantivy": 0.25,
        }
        for digit, role, reused in (("a", "base", True), ("b", "delta", False))
    ],
    "gates": [{"gate": "drift", "verdict": "refused", "measured": 0.5, "limit": 0.2, "finding": HOSTILE}],
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The HTML files of the three pages, written by the command where it reads records."""
    root = tmp_path_factory.mktemp("runs")
    table, _ = encode_records(root, reason=HOSTILE)
    work, _ = training_records(root, kind=HOSTILE)
    for place in (table.uri, work.uri):
        assert main(["inspect", "run", place, "--output", str(root / "pages")]) == 0
    builds = root / "pages" / "index-run.html"
    builds.write_text(render_page(builds_page(BUILDS)))
    return {"encode": root / "pages/encode.html", "train": root / "pages/train.html", "index": builds}


@pytest.mark.parametrize("name", first_quick(["encode", "train", "index"]))
def test_page_with_hostile_records_is_accessible_printable_and_quiet(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    assert problems_of(browser, files[name]) == []


def test_encode_page_shows_waves_idle_share_and_reasons(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["encode"]) as (page, _):
        charts = [figure.get_attribute("data-chart") for figure in page.locator("figure[data-chart]").all()]
        assert charts == ["rows", "rate", "idle", "commit", "timeline", "reasons"]
        facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
        assert facts["encoders idle, last run"] == "30 %"
        assert facts["quarantined"] == "3"
        assert page.get_by_text(HOSTILE).count() > 0


def test_training_page_draws_the_curves_that_have_numbers(tmp_path: Path) -> None:
    page = training_page(describe_training(training_records(tmp_path)[0]))
    names = {name.removeprefix("stage-1-") for name in page.charts if name.startswith("stage-1-")}
    assert names == {
        "loss",
        "sparsity",
        "validation",
        "validated",
        "dead",
        "learning-rate",
    }  # speed and gradient norm are never a number
    assert [row["step"] for row in page.charts["stage-1-validation"].rows if row["line"] == "RR@10"] == [0, 10, 20, 30]


def test_lines_of_long_runs_are_thinned_and_keep_the_last_report(tmp_path: Path) -> None:
    page = training_page(describe_training(training_records(tmp_path, steps=4000)[0]))
    rows = [row for row in page.charts["stage-1-loss"].rows if row["line"] == "total"]
    assert len(rows) <= 301
    assert (rows[0]["step"], rows[-1]["step"]) == (0, 3998)


@pytest.mark.long
def test_page_of_thousands_of_waves_stays_small(tmp_path: Path) -> None:
    found = describe_encoding(encode_records(tmp_path)[0])
    waves = [{**found["waves"][0], "wave": number} for number in range(5000)]
    page = encode_page({**found, "waves": waves})
    assert len(render_page(page)) < 5_000_000
    assert len(json.loads(page_json(page))["data"]["waves"]) == 5000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["empty"], "holds no records of a run"),
        (["table", "--model", "b" * 12], "--model: "),
        (["table", "--plan", "abc"], "--plan: no plan of "),
        (["table", "--cluster", "absent.yaml"], "--cluster: "),
    ],
)
def test_run_page_refuses_bad_usage_in_one_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    encode_records(tmp_path)
    assert main(["inspect", "run", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
