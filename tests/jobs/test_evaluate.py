import pytest

from lsr_prod.jobs.evaluate import print_systems

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
