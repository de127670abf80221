"""Tables of a finished run, and its figures as one flat mapping."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lsr_prod.jobs.evaluate import print_comparisons, print_systems
from lsr_prod.jobs.terminal.tables import print_columns
from quickstart.stages import DOCUMENTS, QUERIES, Stage

__all__ = ["print_quality", "print_stages", "result"]

_PER_DOCUMENT = ("collect", "encode", "index")
_LATENCIES = ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")
_MEASURES = {"mrr10": "RR@10", "r10": "R@10"}


def print_stages(stages: Sequence[Stage], total: float) -> None:
    """Print seconds, documents per second and main figures of every stage."""
    rows: list[list[Any]] = [
        [
            stage.name,
            round(stage.seconds, 1),
            round(DOCUMENTS / stage.seconds) if stage.kind in _PER_DOCUMENT else None,
            _note(stage),
        ]
        for stage in stages
    ]
    print_columns(
        "stages", ("stage", "seconds", "documents/s", "result"), [*rows, ["total", round(total, 1), None, None]]
    )


def print_quality(stages: Sequence[Stage]) -> None:
    """Print one row per system, and the paired tests against BM25."""
    comparisons = [one for _, evaluation in _evaluations(stages) for one in evaluation["comparisons"]]
    print_systems([system for system, _ in _systems(stages)], comparisons)
    print_comparisons([one for one in comparisons if one["measure"] == _MEASURES["mrr10"]])


def result(stages: Sequence[Stage], total: float) -> dict[str, Any]:
    """Return the figures of the run as a flat mapping, those of a system after its name."""
    values: dict[str, Any] = {"docs": DOCUMENTS, "queries": QUERIES, "seconds": round(total, 1)}
    values |= {f"seconds.{_key(stage.name)}": round(stage.seconds, 1) for stage in stages}
    for system, evaluation in _systems(stages):
        values |= {f"{_key(system['name'])}.{name}": value for name, value in _figures(system, evaluation).items()}
    for stage in stages:
        before = f"{stage.prefix}." if stage.prefix else ""
        values |= {f"{before}{name}": value for name, value in _costs(stage).items()}
    return values


def _evaluations(stages: Sequence[Stage]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((stage.prefix, stage.summary) for stage in stages if stage.kind == "evaluate")


def _systems(stages: Sequence[Stage]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return every system with its evaluation; BM25, which all indexes have, only of the default deployment."""
    return [
        (system, evaluation)
        for prefix, evaluation in _evaluations(stages)
        for system in evaluation["systems"]
        if not (prefix and system["kind"] == "bm25")
    ]


def _figures(system: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Return measures with intervals, latencies, and the difference from BM25 with its interval and p value."""
    values: dict[str, float] = {}
    for key, measure in _MEASURES.items():
        low, high = system["intervals"][measure]
        values |= {key: system["measures"][measure], f"{key}_low": low, f"{key}_high": high}
        for one in evaluation["comparisons"]:
            if one["system"] == system["name"] and one["measure"] == measure:
                names = {"difference": "gain", "low": "gain_low", "high": "gain_high", "p_adjusted": "p"}
                values |= {f"{key}_{name}": one[field] for field, name in names.items()}
    values = {name: round(value, 4) for name, value in values.items()}
    return values | {"matched": round(system["matched"], 1)} | {name: round(system[name], 3) for name in _LATENCIES}


def _costs(stage: Stage) -> dict[str, Any]:
    match stage.kind:
        case "encode":
            return {"encode_docs_per_s": round(DOCUMENTS / stage.seconds, 1)}
        case "index":
            return {key: round(value, 1) for key, value in stage.summary.items() if key.startswith("bytes_per_doc")}
        case "evaluate":
            return {key: round(stage.summary[key], 4) for key in ("l0_query", "l0_document", "flops")}
        case "pages":
            return {f"page.{name}": place for name, place in stage.summary.items()}
    return {}


def _note(stage: Stage) -> str:
    """Return the main figures of a stage in words."""
    figures = stage.summary
    match stage.kind:
        case "collect":
            return f"{DOCUMENTS:,} docstrings, {QUERIES:,} held-out queries"
        case "train":
            trained = figures["stage_rows"][-1]
            return f"{trained['steps']} steps on {trained['rows']:,} other docstrings, loss {trained['loss']:.2f}"
        case "export":
            return f"{figures['precision']} graph of {figures['graph_bytes'] / 1e6:.1f} MB"
        case "encode":
            return f"{figures['rows_out']:,} vectors, {figures['quarantined']} quarantined"
        case "index":
            parts = (name.removeprefix("bytes_per_doc_") for name in figures if name.startswith("bytes_per_doc_"))
            sizes = ", ".join(f"{part} {figures[f'bytes_per_doc_{part}']:.0f}" for part in parts)
            return f"{figures['bytes_per_doc']:.0f} bytes per document ({sizes})"
        case "evaluate":
            systems = f"{figures['queries']:,} queries x {len(figures['systems'])} systems"
            l0 = f"L0 {figures['l0_query']:.0f} per query, {figures['l0_document']:.0f} per document"
            return f"{systems}; {l0}, FLOPS {figures['flops']:.2f}"
        case "pages":
            return ", ".join(figures)
    return ""


def _key(name: str) -> str:
    return name.replace(" ", "_")
