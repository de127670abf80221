"""Compile what queries need before the first query: ``lsr-prod warm INDEX``, in an image's build or before traffic.

The compiled kernels are kept beside the package, or where ``NUMBA_CACHE_DIR`` says, and later processes load them.
"""

import time
from dataclasses import dataclass

from lsr_prod.search.searcher import Searcher

__all__ = ["Warmth", "warm"]


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a process pays before it answers at full speed.

    Attributes:
        import_s: seconds to import numba.
        open_ms: milliseconds to open the index.
        first_s: seconds of the first query and the first exact scores: compiling, or loading what was compiled.
        next_ms: milliseconds of the same query after that.
    """

    import_s: float
    open_ms: float
    first_s: float
    next_ms: float


def warm(index: str) -> Warmth:
    """Open an index and ask it once in each way that has a kernel of its own.

    Args:
        index: folder of the index.

    Raises:
        PublicationError: nothing is published there.
        ArtifactError: the version is incomplete, damaged or of another format.
    """
    start = time.perf_counter()
    import numba  # noqa: F401 - what the first query would import

    imported = time.perf_counter()
    searcher = Searcher.open(index)
    opened = time.perf_counter()
    _ask(searcher)
    asked = time.perf_counter()
    _ask(searcher)
    return Warmth(imported - start, (opened - imported) * 1e3, asked - opened, (time.perf_counter() - asked) * 1e3)


def _ask(searcher: Searcher) -> None:
    for required in (1, 2):
        searcher.search_vector({0: 1.0, 1: 1.0}, 1, min_terms=required, rescore=1)
