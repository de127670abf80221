"""The figures of a finished run."""

import pytest

from quickstart.report import print_quality, print_stages, result
from quickstart.stages import Stage

LATENCIES = {"match_p50_ms": 0.1, "match_p95_ms": 0.2, "text_p50_ms": 0.3, "text_p95_ms": 0.4}


def system(name: str, kind: str, value: float) -> dict[str, object]:
    measures = {"RR@10": value, "R@10": value + 0.2}
    intervals = {measure: [mean - 0.02, mean + 0.03] for measure, mean in measures.items()}
    return {"name": name, "kind": kind, "measures": measures, "intervals": intervals, "matched": 12.34, **LATENCIES}


def comparison(name: str, measure: str, p: float) -> dict[str, object]:
    tests = {"p_t": p, "p_randomization": p, "p_adjusted": p, "significant": p < 0.05}
    counts = {"wins": 3, "losses": 2, "ties": 5}
    ends = {"difference": 0.02, "low": 0.01, "high": 0.03}
    return {"measure": measure, "system": name, "baseline": "bm25", **ends, **counts, **tests}


def evaluation(prefix: str, *systems: dict[str, object]) -> Stage:
    comparisons = [comparison(str(one["name"]), "RR@10", 0.012345) for one in systems if one["kind"] != "bm25"]
    costs = {"queries": 10, "l0_query": 9.0, "l0_document": 120.5, "flops": 1.5}
    return Stage("evaluate", prefix, 2.0, {"systems": list(systems), "comparisons": comparisons, **costs})


@pytest.fixture
def stages() -> list[Stage]:
    """Default deployment and the variant ``pair``, all stages of one of them."""
    rows = [{"changes": 1}, {"steps": 200, "rows": 8_000, "loss": 0.5}]
    bytes_per_doc = {"bytes_per_doc": 30.0, "bytes_per_doc_impacts": 10.0, "bytes_per_doc_docs": 20.0}
    return [
        Stage("collect", "", 20.0, {}),
        Stage("train", "", 100.0, {"stage_rows": rows}),
        Stage("export", "", 5.0, {"precision": "int8", "graph_bytes": 4_600_000}),
        Stage("encode", "", 50.0, {"rows_out": 10_000, "quarantined": 0}),
        Stage("index", "", 4.0, bytes_per_doc),
        evaluation(
            "", system("bm25", "bm25", 0.49), system("finetuned", "sparse", 0.45), system("hybrid", "hybrid", 0.51)
        ),
        evaluation("pair", system("bm25", "bm25", 0.4), system("pair hybrid", "hybrid", 0.5)),
    ]


def test_result_has_measures_intervals_and_test_of_every_system(stages: list[Stage]) -> None:
    values = result(stages, 181.04)
    assert (values["bm25.mrr10"], values["finetuned.mrr10"], values["hybrid.mrr10"]) == (0.49, 0.45, 0.51)
    assert (values["hybrid.mrr10_low"], values["hybrid.mrr10_high"]) == (0.49, 0.54)
    assert (values["hybrid.mrr10_gain"], values["hybrid.mrr10_gain_low"], values["hybrid.mrr10_p"]) == (
        0.02,
        0.01,
        0.0123,
    )
    assert "bm25.mrr10_p" not in values
    assert values["hybrid.text_p50_ms"] == 0.3
    assert values["pair_hybrid.mrr10"] == 0.5


def test_result_has_seconds_and_costs_of_every_stage(stages: list[Stage]) -> None:
    values = result(stages, 181.04)
    assert values["seconds"] == 181.0
    assert values["seconds.train"] == 100.0
    assert values["seconds.pair_evaluate"] == 2.0
    assert values["encode_docs_per_s"] == 200.0
    assert values["bytes_per_doc_impacts"] == 10.0
    assert values["l0_document"] == values["pair.l0_document"] == 120.5


def test_tables_name_every_stage_and_every_system_once(stages: list[Stage], capsys: pytest.CaptureFixture[str]) -> None:
    print_stages(stages, 181.04)
    printed = capsys.readouterr().out
    assert "200 steps on 8,000 other docstrings, loss 0.50" in printed
    assert "int8 graph of 4.6 MB" in printed
    assert "30 bytes per document (impacts 10, docs 20)" in printed
    assert "pair evaluate" in printed
    print_quality(stages)
    quality, _, tests = capsys.readouterr().out.partition("compared with bm25")
    assert [quality.count(name) for name in ("│ bm25 ", "│ finetuned ", "│ hybrid ", "│ pair hybrid ")] == [1] * 4
    assert tests.count("+0.010 to +0.030") == 3
