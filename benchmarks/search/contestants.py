"""The contestants of the search benchmarks and the settings that approximate engines are tuned over."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.search.data import Collection
from benchmarks.search.race import Contestant, tune

__all__ = [
    "ARRAYS",
    "LOCAL",
    "PEERS",
    "PUBLIC",
    "RATIO",
    "SINDI_EXACT",
    "TWO",
    "exact_sindi",
    "is_ours",
    "ours",
]

PUBLIC, ARRAYS = "ours, search_vector", "ours, search_arrays"
TWO, RATIO, SINDI_EXACT = "ours, >= 2 terms", "ours, ratio 0.4", "sindi exact"
# The first entry is Seismic's defaults, which cut long lists and summarize coarsely: recall on short vectors is lower.
# The last has a graph of neighbors, which refines the hits.
SEISMIC_BUILDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"max_fraction": 20.0, "summary_energy": 0.7},
    {"max_fraction": 20.0, "summary_energy": 0.5, "centroid_fraction": 0.2},
    {"max_fraction": 20.0, "summary_energy": 0.7, "nknn": 10},
)
SEISMIC_CUTS = (3, 5, 10, 15)
SEISMIC_HEAP_FACTORS = (0.5, 0.7, 0.8, 0.9, 1.0)


def ours() -> list[Contestant]:
    """Return our contestants; all are public calls of one published index."""
    options = {"call": "vector", "min_terms": 1, "overlap_threshold": 0.0}
    base = Contestant(PUBLIC, "benchmarks.search.published", "Published", {}, options, fresh=True)
    return [
        base,
        replace(base, name=ARRAYS, options={**options, "call": "arrays"}),
        replace(base, name=TWO, options={**options, "min_terms": 2}),
        replace(base, name=RATIO, options={**options, "overlap_threshold": 0.4}),
    ]


def is_ours(name: str) -> bool:
    """Return True for the name of one of our contestants."""
    return name.startswith("ours")


def tuned_ours(
    collection: Collection, query_terms: int, folder: Path, *, made: set[Path], quick: bool
) -> list[Contestant]:
    """Return our public call with the query settings that are fastest in each band of recall."""
    cuts = [cut for cut in (3, 5, 10, 15) if cut < query_terms]
    grid = {"qk": [None, *(cuts[-1:] if quick else cuts)], "min_terms": (1, 2)}
    base = replace(ours()[0], name="ours tuned")
    return tune(base, [{}], grid, collection, query_terms, folder, made=made)


def tuned_seismic(
    python: str, collection: Collection, query_terms: int, folder: Path, *, made: set[Path], quick: bool
) -> list[Contestant]:
    """Return Seismic with the builds and query settings that are fastest in each band of recall."""
    base = Contestant("seismic", "benchmarks.search.seismic", "Seismic", python=python)
    builds = [{"build": build} for build in (SEISMIC_BUILDS[1:2] if quick else SEISMIC_BUILDS)]
    cuts = [*[cut for cut in SEISMIC_CUTS if cut < query_terms][-2:], query_terms]
    grid = {"cut": cuts, "heap_factor": SEISMIC_HEAP_FACTORS[1::3] if quick else SEISMIC_HEAP_FACTORS}
    return tune(base, builds, grid, collection, query_terms, folder, made=made)


def exact_sindi(python: str) -> Contestant:
    """Return SINDI without quantization and pruning."""
    options = {"query_prune": 0.0, "term_prune": 0.0}
    return Contestant(SINDI_EXACT, "benchmarks.search.sindi", "Sindi", {"quantize": False}, options, python=python)


def tuned_sindi(
    python: str, collection: Collection, query_terms: int, folder: Path, *, made: set[Path], quick: bool
) -> list[Contestant]:
    """Return exact SINDI, and the weights of 8 bits and the pruning that are fastest in each band of recall."""
    exact = exact_sindi(python)
    base = replace(exact, name="sindi")
    grid = {"query_prune": (0.0, 0.2) if quick else (0.0, 0.1, 0.2, 0.3, 0.4)}
    found = tune(base, [{"quantize": True}], grid, collection, query_terms, folder, made=made)
    return [exact, *found]


def others(python: str, *_: Any, **__: Any) -> list[Contestant]:
    """Return the embedded engines that have no query settings."""
    return [
        Contestant("qdrant-edge", "benchmarks.search.qdrant", "Qdrant", python=python),
        Contestant("sqlite-sparse", "benchmarks.search.sqlite_sparse_peer", "SqliteSparse", python=python),
    ]


def bmp(python: str, *_: Any, **__: Any) -> list[Contestant]:
    """Return BMP with documents in our order and in the order of their true topics."""
    base = Contestant("bmp exact", "benchmarks.search.bmp", "Bmp", {"sorted": False}, python=python)
    return [base, replace(base, name="bmp exact, sorted", build={"sorted": True})]


def in_our_environment(*_: Any, **__: Any) -> list[Contestant]:
    """Return the peers that run in our own environment."""
    tantivy = Contestant("tantivy or", "benchmarks.search.peers", "Tantivy", options={"mode": "or"})
    return [
        tantivy,
        replace(tantivy, name="tantivy >= 2, count", options={"mode": "two"}),
        replace(tantivy, name="tantivy >= 2, scored", options={"mode": "two ranked"}),
        Contestant("csc arrays (bm25s)", "benchmarks.search.peers", "Csc"),
        Contestant("scipy", "benchmarks.search.peers", "Scipy"),
    ]


LOCAL = ("tuned", "local")  # run in our own environment
# Contestants by the name that ``--peers`` takes; the first argument is the interpreter of the peers' environment.
PEERS: Mapping[str, Callable[..., list[Contestant]]] = {
    "tuned": lambda _, *arguments, **keywords: tuned_ours(*arguments, **keywords),
    "sindi": tuned_sindi,
    "seismic": tuned_seismic,
    "embedded": others,
    "bmp": bmp,
    "local": in_our_environment,
}
