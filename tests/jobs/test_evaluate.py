import pytest

from lsr_prod.jobs.evaluate import print_comparisons, print_systems

LATENCIES = {"match_p50_ms": 0.251, "match_p95_ms": 0.5, "text_p50_ms": 3.141, "text_p95_ms": 9.0}


def test_print_systems_shows_one_row_per_system(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    systems = [
        {"name": "bm25", "measures": {"nDCG@10": 0.65432, "R@100": 1.0}, "matched": 1234.4, **LATENCIES},
        {"name": "threshold 0.4", "measures": {"nDCG@10": 0.7, "R@100": 0.9}, "matched": 56.0, **LATENCIES},
    ]
    print_systems(systems)
    lines = capsys.readouterr().out.splitlines()
    (heading,) = [line for line in lines if "system" in line]
    assert heading.index("nDCG@10") < heading.index("R@100") < heading.index("matched per query")
    (bm25,) = [line for line in lines if "bm25" in line]
    for value in ("0.654", "1.000", "1,234", "0.251", "0.500", "3.141", "9.000"):
        assert value in bm25
    (threshold,) = [line for line in lines if "threshold 0.4" in line]
    assert "0.700" in threshold


def test_print_systems_without_systems_prints_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_systems([])
    assert "system" in capsys.readouterr().out


def test_marks_and_intervals_follow_the_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    unknown = dict.fromkeys(LATENCIES)
    systems = [
        {"name": "bm25", "measures": {"R@10": 0.5}, "intervals": {"R@10": [0.4, 0.62]}, "matched": 4.0, **LATENCIES},
        {"name": "hybrid", "measures": {"R@10": 0.7}, "intervals": {"R@10": [0.6, 0.8]}, "matched": 5.0, **LATENCIES},
        {"name": "other", "measures": {"R@10": 0.3}, "intervals": {"R@10": [0.2, 0.4]}, "matched": None, **unknown},
    ]
    tests = {"measure": "R@10", "baseline": "bm25", "p_t": 0.01, "p_randomization": 0.02, "p_adjusted": 0.04}
    counts = {"wins": 3, "losses": 1, "ties": 2}
    comparisons = [
        {"system": "hybrid", "difference": 0.2, "low": 0.1, "high": 0.3, "significant": True, **tests, **counts},
        {"system": "other", "difference": -0.2, "low": -0.3, "high": -0.1, "significant": True, **tests, **counts},
    ]
    print_systems(systems, comparisons)
    printed = capsys.readouterr().out
    assert "significantly better or worse than bm25" in printed
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in printed.splitlines() if "±" in line]
    assert rows == [
        ["bm25", "0.500 ±0.110", "4"],
        ["hybrid", "0.700 ±0.100 ▲", "5"],
        ["other", "0.300 ±0.100 ▼", ""],
    ]
    print_comparisons([{**comparisons[0], "significant": False}, comparisons[1]])
    hybrid, other = (line for line in capsys.readouterr().out.splitlines() if "R@10" in line)
    assert [cell.strip() for cell in hybrid.split("│")[3:9]] == [
        "+0.200", "+0.100 to +0.300", "3 / 2 / 1", "0.010", "0.020", "0.040",
    ]  # fmt: skip
    assert "▲" not in hybrid
    assert "▼" in other


def test_no_comparison_prints_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparisons([])
    assert capsys.readouterr().out == ""
