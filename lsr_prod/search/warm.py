"""Measure a cold start: ``lsr-prod index warm INDEX``."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lsr_prod.search.searcher import Searcher


@dataclass(frozen=True, slots=True)
class Warmth:
    """Durations of a process's start."""

    open_ms: float  # milliseconds to open the index
    first_ms: float  # milliseconds of the first query and its rescoring, which read its pages from disk
    next_ms: float  # milliseconds of the same query afterwards


def warm(index: str, storage_options: Mapping[str, str] | None = None) -> Warmth:
    """Open an index and run a query that uses every kernel."""
    start = time.perf_counter()
    searcher = Searcher.open(index, storage_options=storage_options)
    opened = time.perf_counter()
    _run_query(searcher)
    queried = time.perf_counter()
    _run_query(searcher)
    return Warmth((opened - start) * 1e3, (queried - opened) * 1e3, (time.perf_counter() - queried) * 1e3)


def _run_query(searcher: Searcher) -> None:
    for required in (1, 2):
        searcher.search_vector({0: 1.0, 1: 1.0}, 1, min_terms=required, rescore=1)
