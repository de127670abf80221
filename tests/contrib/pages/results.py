"""Results of evaluations and sweeps, made up, in the form that the jobs write."""

import json
from typing import Any

import numpy as np

from lsr_prod.evaluation.comparisons import SignificanceOptions, compare_with_baseline, mean_intervals

MEASURES = ("nDCG@10", "RR@10")


def evaluation_result(queries: int, *, text: str = "how does a lock wait for a thread") -> dict[str, Any]:
    """``Evaluation.result()`` of four systems; the hybrid is the best, a run has no latencies."""
    rng = np.random.default_rng(7)
    base = rng.beta(0.8, 1.2, queries)
    kinds = {
        "bm25": ("bm25", 0.0),
        "threshold 0": ("sparse", 0.02),
        "hybrid": ("hybrid", 0.1),
        "old engine": ("run", 0),
    }
    by_query = {
        name: {m: np.round(np.clip(base + gain + rng.normal(0, 0.2, queries), 0, 1), 2) for m in MEASURES}
        for name, (_, gain) in kinds.items()
    }
    tests = SignificanceOptions(resamples=200)
    systems = [
        {
            "name": name,
            "kind": kind,
            "measures": {m: float(values.mean()) for m, values in by_query[name].items()},
            "intervals": mean_intervals(by_query[name], tests),
            "by_query": {m: values.tolist() for m, values in by_query[name].items()},
            "matched": None if kind == "run" else 1234.5,
            **dict.fromkeys(("match_p50_ms", "match_p95_ms"), None if kind == "run" else 0.4),
            **dict.fromkeys(("text_p50_ms", "text_p95_ms"), None if kind == "run" else 3.5 + gain),
        }
        for name, (kind, gain) in kinds.items()
    ]
    few = {name: {m: values[:300] for m, values in of.items()} for name, of in by_query.items()}
    comparisons = [
        {field: getattr(one, field) for field in one.__slots__} for one in compare_with_baseline(few, "bm25", tests)
    ]
    counts = {"mean": 23.4, "p50": 22.0, "p95": 40.0}
    result = {
        "index": f"s3://bucket/index of {text}",
        "version": "f" * 64,
        "queries": queries,
        "documents": 1_000_000,
        "l0_query": 23.4,
        "l0_document": 120.5,
        "flops": 1.5,
        "query_ids": [f"q{n}" for n in range(queries)],
        "query_texts": [f"{text} {n}" for n in range(queries)],
        "systems": systems,
        "baseline": "bm25",
        "significance": 0.05,
        "correction": "holm",
        "comparisons": comparisons,
        "efficiency": {
            "bytes": {"postings": 812_345_678, "documents": 312_000_000, "bounds": 1_234_567, "attributes": 0},
            "postings": {
                "mean": 310.2,
                "variance": 9e6,
                "std": 3e3,
                "max": 120_000,
                "empty": 12,
                "curve": [[n, 120_000 // n] for n in (1, 2, 5, 10, 100, 1_000, 10_000)] + [[30_522, 0]],
            },
            "l0_query": counts,
            "l0_document": counts,
            "matched": [
                {"kind": kind, "threshold": value, "documents": 5e5 * (1 - 0.9 * place / 4)}
                for kind, values in {
                    "count": (1, 2, 4, 8),
                    "ratio": (0, 0.2, 0.4, 0.8),
                    "weight": (0, 0.3, 0.6),
                }.items()
                for place, value in enumerate(values)
            ],
            "sampled": queries,
            "postings_read": 45_000.0,
            "by_query": {"terms": [20] * queries, "multiplications": rng.integers(1_000, 90_000, queries).tolist()},
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(result))
    return plain


def sweep_result(models: int, prunings: int, thresholds: int, *, queries: int, text: str = "model") -> dict[str, Any]:
    """``SweepReport.result()`` on two collections."""
    rng = np.random.default_rng(7)
    points: list[dict[str, Any]] = []
    for collection in ("scifact", "msmarco"):
        for model in range(models):
            for pruning in range(prunings):
                for threshold in range(thresholds):
                    dk = 0 if pruning == prunings - 1 else 8 * 2 ** (pruning % 4)
                    flops = 0.05 * (pruning + 1) * (1 + model) / (1 + threshold)
                    quality = 0.5 + 0.1 * float(np.tanh(flops)) - 0.02 * model + float(rng.normal(0, 0.01))
                    points.append(
                        {
                            "collection": collection,
                            "model": f"{text} {model}",
                            "qk": 0 if pruning % 3 == 0 else 8 * (pruning % 3),
                            "dk": dk,
                            "threshold": 0.2 * threshold,
                            "hybrid_weight": None if model else 0.5,
                            "measures": dict.fromkeys(MEASURES, quality),
                            "by_query": {m: rng.random(queries).round(6).tolist() for m in MEASURES},
                            "flops": flops,
                            "l0_query": 20.0,
                            "l0_document": float(dk or 200),
                            "matched": 4_000.0 / (1 + threshold),
                            "bytes": 1_000_000 * (dk or 200),
                            "match_p50_ms": 0.2 + flops,
                        }
                    )
    costs = ("flops", "match_p50_ms", "bytes")
    fronts = {name: {cost: _front(points, name, cost) for cost in costs} for name in ("scifact", "msmarco")}
    place = fronts["scifact"]["flops"][-2:][0]
    half = len(points) // 2
    return {
        "measure": MEASURES[0],
        "costs": list(costs),
        "collections": [
            {"name": name, "queries": queries, "documents": 5_183, "query_ids": [f"q{n}" for n in range(queries)]}
            for name in ("scifact", "msmarco")
        ],
        "points": points,
        "fronts": fronts,
        "chosen": {
            "point": place,
            "points": {"scifact": place, "msmarco": place + half},
            "within": 0.01,
            "p": 0.21,
            "patch": {"index": {"dk": 64, "bundle": text}, "evaluate": {"thresholds": [0.2], "qk": None}},
            "sentence": f"{text} 0 is the cheapest setting within 1 % of the best (p = 0.21).",
        },
    }


def _front(points: list[dict[str, Any]], collection: str, cost: str) -> list[int]:
    places = [place for place, point in enumerate(points) if point["collection"] == collection]
    front, best = [], -1.0
    for place in sorted(places, key=lambda place: (points[place][cost], -points[place]["measures"][MEASURES[0]])):
        if points[place]["measures"][MEASURES[0]] > best:
            best = points[place]["measures"][MEASURES[0]]
            front.append(place)
    return front
