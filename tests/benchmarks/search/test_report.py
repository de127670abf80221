from types import ModuleType
from typing import Any

import pytest

from benchmarks.search import text, threads
from benchmarks.search.contestants import ARRAYS, PUBLIC, SINDI_EXACT
from benchmarks.search.race import Contestant, Row
from benchmarks.search.report import results, sizes


def row(name: str, us: float, *, recall: float = 1.0, build_s: float = 1.0) -> Row:
    return Row(
        Contestant(name, "module", "Engine"),
        1_000,
        build_s,
        sizes={"matching": 55_000, "forward": 60_000},
        times={k: [us, us, us] for k in (10, 100)},
        recall={10: recall, 100: recall},
        batch_qps={1: 100.0, 2: 190.0},
    )


def by_name(*rows: Row) -> dict[str, Row]:
    return {each.contestant.name: each for each in rows}


def test_public_ratios_ignore_the_array_call_and_peers_below_the_recall() -> None:
    rows = by_name(
        row(PUBLIC, 80, build_s=3), row(ARRAYS, 10), row("seismic a", 100, build_s=6), row("seismic b", 5, recall=0.95)
    )
    found = results({"topics20": rows})
    assert found["public_p50_ratio_seismic_k10"] == found["public_p50_ratio_seismic_k100"] == 0.8
    assert found["build_ratio_seismic_whole"] == 0.5
    assert found["bytes_per_doc"] == 55.0
    assert found["threads_2"] == 1.9


def test_ratio_to_sindi_is_the_worse_of_the_real_collections() -> None:
    seven = by_name(row(PUBLIC, 120), row(ARRAYS, 80), row(SINDI_EXACT, 100))
    many = by_name(row(PUBLIC, 150), row(ARRAYS, 90), row(SINDI_EXACT, 100))
    found = results({"splade7": seven, "splade25": many, "small": seven})
    assert found["public_p50_ratio_sindi_real"] == found["public_p95_ratio_sindi_real"] == 1.5
    assert found["arrays_p50_ratio_sindi_real"] == 0.9
    assert found["fixed_us"] == 80.0


def test_missing_engines_and_collections_give_none() -> None:
    found = results({"topics20": by_name(row(PUBLIC, 80))})
    missing = ("public_p50_ratio_seismic_k10", "public_p50_ratio_sindi_real", "fixed_us", "build_ratio_seismic_whole")
    assert [found[key] for key in missing] == [None] * 4


def test_bytes_to_match_and_to_score_are_printed_of_all_files() -> None:
    mine, peer = row(PUBLIC, 80), row(SINDI_EXACT, 80)
    mine.sizes = {**mine.sizes, "Tantivy and documents": 5_000}
    peer.sizes = {"index": 173_000}
    assert [sizes(mine), sizes(peer)] == ["55.0 + 60.0 of 120", "173.0"]


@pytest.mark.parametrize("program", [threads, text])
def test_help_of_a_program_that_takes_an_index_ends_without_a_traceback(program: ModuleType, capsys: Any):
    with pytest.raises(SystemExit, match="0"):
        program.main(["--help"])
    assert "queries" in capsys.readouterr().out
