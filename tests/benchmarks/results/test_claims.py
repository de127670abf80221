"""Verdicts and the page, from outcomes that are written by hand."""

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.results.claims import Claim, Family, Verdict, verdict
from benchmarks.results.page import renewed, threshold_rows, write_page
from benchmarks.results.pruning import corrected
from benchmarks.results.runs import Chain, Outcome, key

QUERIES = 40


class Pages:
    groups = tuple(f"page {number}" for number in range(QUERIES))


def outcome(values: list[float]) -> Outcome:
    cost = {"l0_query": 5.0, "l0_document": 20.0, "flops": 0.5, "matched": 10.0}
    places = [key(name, (0, 0), 0.0) for name in ("tldr", "lower")]
    return Outcome(dict.fromkeys(places, values), dict.fromkeys(places, cost), (3.0, 1.0), 2.0)


def decided(better: list[float], worse: list[float]) -> Verdict:
    claim = Claim("a beats b", "a", "b", why="the model is small")
    return verdict(claim, {"a": [outcome(better)] * 3, "b": [outcome(worse)]}, Pages())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("better", "worse", "word"),
    [
        ([0.6] * QUERIES, [0.4] * QUERIES, "shown"),
        ([0.4] * QUERIES, [0.6] * QUERIES, "not shown"),
        ([0.4] * QUERIES, [0.4] * QUERIES, "not shown"),
        ([0.5] * (QUERIES - 1) + [1.0], [0.5] * QUERIES, "not significant"),
    ],
)
def test_verdict_needs_direction_and_significance(better: list[float], worse: list[float], word: str):
    assert decided(better, worse).word == word


def test_sentence_on_several_comparisons_names_those_that_are_left_by_a_correction():
    found = decided([0.6] * QUERIES, [0.4] * QUERIES)

    def verdicts(measure: str, *values: float) -> list[Verdict]:
        claims = [replace(found.claim, text=f"{p} is ahead, {measure}") for p in values]
        return [Verdict(claim, replace(found.found, p=p)) for claim, p in zip(claims, values, strict=True)]

    said = corrected([*verdicts("RR@10", 0.03, 0.04, 0.001), *verdicts("R@10", 0.3, 0.02, 0.001)])
    assert said.startswith("6 comparisons are made, 3 per measure.")
    assert re.findall(r'"(\S+) is ahead, (\S+)"', said) == [("0.001", "RR@10"), ("0.02", "R@10"), ("0.001", "R@10")]
    assert corrected([*verdicts("RR@10", 0.03, 0.04), *verdicts("R@10", 0.3, 0.9)]).endswith("holds for no difference.")


def test_row_without_seeds_is_compared_with_every_seed():
    assert decided([0.6] * QUERIES, [0.4] * QUERIES).found.seeds == 3


def test_page_prints_the_analysis_only_where_a_claim_is_not_shown():
    rows = {"a": Chain("uncased", ()), "b": Chain("uncased", ())}
    family = Family("f", "A family", "What was done.", rows, [])
    outcomes = {"f": {"a": [outcome([0.25] * QUERIES)] * 3, "b": [outcome([0.5] * QUERIES)]}}
    header = {"steps": 1, "pairs": 2, "queries": QUERIES, "documents": 4, "bm25": 0.5, "bm25_lower": 0.25}
    verdicts = {"f": [decided([0.25] * QUERIES, [0.5] * QUERIES), decided([0.5] * QUERIES, [0.25] * QUERIES)]}

    page = write_page([family], outcomes, verdicts, {"f": "| further |"}, header)

    assert "| a | 0.250 | 0.250 0.250 0.250 | 0.250 | 5 | 20 | 0.5 | 3.00 to 1.00 |" in page
    assert "| b | 0.500 |  |" in page
    assert page.count("**not shown**: the model is small") == page.count("the model is small") == 1
    assert page.index("## A family") < page.index("**shown**") < page.index("| further |")


def test_page_keeps_the_sections_that_were_not_made_again():
    before = "# Old\n\n## One\n\nfirst\n\n## Two\n\nsecond\n"
    assert renewed(before, "# New\n\n## Two\n\nagain\n\n## Three\n") == (
        "# New\n\n## One\n\nfirst\n\n## Two\n\nagain\n\n## Three\n"
    )
    assert renewed("", before) == renewed(before, before) == before


def test_values_are_those_of_the_level_and_threshold():
    one = outcome([0.25])
    one.by_query[key("tldr", (5, 10), 0.4)] = [0.75]
    assert one.values("tldr", (5, 10), 0.4) == np.array([0.75])


def test_equal_flops_takes_the_most_expensive_level_that_costs_no_more():
    better, worse = outcome([0.2] * QUERIES), outcome([0.4] * QUERIES)
    for level, flops, value in (((5, 10), 0.1, 0.5), ((7, 20), 0.4, 0.6)):
        place = key("tldr", level, 0.0)
        better.by_query[place] = [value] * QUERIES
        better.cost[place] = {**better.cost[key("tldr", (0, 0), 0.0)], "flops": flops}
    better.cost[key("tldr", (0, 0), 0.0)]["flops"] = 0.9
    worse.cost[key("tldr", (0, 0), 0.0)]["flops"] = 0.5
    found = verdict(Claim("x", "a", "b", equal_flops=True), {"a": [better], "b": [worse]}, Pages())  # type: ignore[arg-type]
    assert found.found.difference == pytest.approx(0.2)
    assert found.note == " (at (7, 20) with 0.4 FLOPS against 0.5)"


def test_curves_have_a_column_for_every_threshold():
    one = outcome([0.25])
    for limit, value in ((0.0, 0.5), (0.4, 0.75)):
        place = key("tldr", (7, 20), limit)
        one.by_query[place], one.cost[place] = [value], {"matched": 100 * value}
    assert "| a | 0.500 | 0.750 | 50 | 75 |" in threshold_rows({"a": [one]}, (0.0, 0.4), (7, 20))
