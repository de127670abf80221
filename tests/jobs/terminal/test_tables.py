"""Closing tables: nothing is cut at any width, digests are shortened, paths are not."""

from typing import Any

import pytest

from lsr_prod.jobs.encode import print_encoded
from lsr_prod.jobs.evaluate import print_systems
from lsr_prod.jobs.terminal.tables import print_columns, print_table

WIDTHS = (60, 80, 200)
PATH = "s3://bucket/deployments/production/news-2026/sparse-table/of/the/long/name"
DIGEST = "0123456789ab" + "c" * 52
ENCODED: dict[str, Any] = {
    "documents": 1_000_000, "rows_in": 1_000_010, "rows_out": 1_000_000, "quarantined": 10,
    "quarantined_by_reason": {"empty_text": 7, "text_too_long": 3}, "encoded": 1_000_000, "unchanged": 0, "deleted": 0,
    "clipped": 12, "clipped_share": 1e-7, "max_clipped_share": 0.001, "unread_bytes": 0, "unread_share": 0.0,
    "reused_cells": 0, "tokens": 120_000_000, "padding_share": 0.125, "cut_documents": 3, "waves": 4,
    "waves_skipped": 0, "actors": 8, "threads_per_actor": 2, "seconds": 1000.0, "docs_per_s": 1000.0,
    "encode_seconds": 950.0, "busy_share": 0.96, "source_bytes": 10**9, "table_bytes": 6 * 10**8,
    "requests": 90, "bytes_read": 5_000, "bytes_written": 7_000,
    "impact_step": 0.02, "impact_error": 0.001, "table": PATH, "quarantine": f"{PATH}_quarantine", "plan": DIGEST,
    "base_plan": None, "bundle_digest": DIGEST, "table_version": 4, "table_digest": DIGEST,
}  # fmt: skip
LATENCIES = {"match_p50_ms": 0.251, "match_p95_ms": 0.5, "text_p50_ms": 3.141, "text_p95_ms": 9.0}


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def cells(printed: str) -> list[list[str]]:
    """The cells of every line of the tables."""
    lines = [line for line in printed.splitlines() if line[:1] in "│┃"]
    return [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines]


def test_table_keeps_keys_numbers_and_paths_whole_at_every_width(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "all shards are built because the order of the documents was changed in the settings of the index"
    print_table("job", {"a_key.of_two_words_and_more": 1_234_567, "table": PATH, "digest": DIGEST, "reason": sentence})
    printed = capsys.readouterr().out
    found = cells(printed)
    assert found[:3] == [["a_key.of_two_words_and_more", "1,234,567"], ["table", PATH], ["digest", DIGEST[:12]]]
    assert " ".join(value for _, value in found[3:]) == sentence
    assert max(map(len, printed.splitlines())) <= max(width, len(PATH) + len("a_key.of_two_words_and_more") + 7)


def test_columns_stay_aligned_and_headings_break_between_words(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    systems = [
        {"name": name, "measures": {"nDCG@10": 0.65432, "R@100": 1.0}, "matched": 1234567.4, **LATENCIES}
        for name in ("bm25", "threshold 0.4")
    ]
    print_systems(systems)
    printed = capsys.readouterr().out
    *headings, bm25, threshold = cells(printed)
    joined = [" ".join(filter(None, column)) for column in zip(*headings, strict=True)]
    assert joined == [
        "system", "nDCG@10", "R@100", "matched per query", "match p50 ms", "match p95 ms", "text p50 ms", "text p95 ms",
    ]  # fmt: skip
    assert bm25 == ["bm25", "0.654", "1.000", "1,234,567", "0.251", "0.500", "3.141", "9.000"]
    assert threshold[0] == "threshold 0.4"
    assert len({len(line) for line in printed.splitlines() if line[:1] in "│┃"}) == 1


def test_encode_prints_counts_rate_reasons_and_cost(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(ENCODED)
    print_encoded(ENCODED)
    assert before == ENCODED
    shown = {row[0]: row[1] for row in cells(capsys.readouterr().out)}
    assert (shown["rows in"], shown["quarantined"]) == ("1,000,010", "10")
    assert (shown["empty_text"], shown["text_too_long"]) == ("7", "3")
    assert (shown["documents per second"], shown["tokens per second"]) == ("1,000", "120,000")
    assert (shown["seconds"], shown["cores"]) == ("1,000", "16")
    assert (shown["requests to stores"], shown["bytes written to stores"]) == ("90", "7,000")
    assert (shown["table"], shown["quarantine"]) == (PATH, f"{PATH}_quarantine")
    assert shown["table_digest"] == DIGEST[:12]
    assert not any("…" in cell for cell in [*shown, *shown.values()])


def test_values_are_shown_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns("t", ("a", "b", "c", "d", "e"), [[True, None, 1e-7, 0.0, "x"]])
    assert cells(capsys.readouterr().out)[-1] == ["yes", "", "1e-07", "0.000", "x"]


def test_empty_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("t", {})
    print_columns("t", ("a",), [])
    assert "a" in capsys.readouterr().out
