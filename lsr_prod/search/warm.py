"""Compile the kernels before the first query: ``lsr-prod warm INDEX``, before traffic.

Compiled kernels are cached next to the package, or in ``NUMBA_CACHE_DIR``, and later processes load them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lsr_prod.search.searcher import Searcher

__all__ = ["Warmth", "warm"]


@dataclass(frozen=True, slots=True)
class Warmth:
    """Durations of a process's start.

    Attributes:
        import_s: seconds to import numba.
        open_ms: milliseconds to open the index.
        first_s: seconds of the first query and its rescoring, which compile the kernels or load them from the cache.
        next_ms: milliseconds of the same query afterwards.
    """

    import_s: float
    open_ms: float
    first_s: float
    next_ms: float


def warm(index: str, storage_options: Mapping[str, str] | None = None) -> Warmth:
    """Open an index and run a query that uses every kernel.

    Args:
        index: folder or URI of the index.
        storage_options: options of the object store.

    Raises:
        PublicationError: nothing is published there.
        ArtifactError: the version is incomplete, damaged or of another format.
    """
    start = time.perf_counter()
    import numba  # noqa: F401 - what the first query would import

    imported = time.perf_counter()
    searcher = Searcher.open(index, storage_options=storage_options)
    opened = time.perf_counter()
    _run_query(searcher)
    queried = time.perf_counter()
    _run_query(searcher)
    return Warmth(imported - start, (opened - imported) * 1e3, queried - opened, (time.perf_counter() - queried) * 1e3)


def _run_query(searcher: Searcher) -> None:
    for required in (1, 2):
        searcher.search_vector({0: 1.0, 1: 1.0}, 1, min_terms=required, rescore=1)
