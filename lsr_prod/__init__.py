"""lsr_prod: learned sparse retrieval in production.

The names in ``__all__`` are the public interface. Each is imported on first use, so importing the package is fast;
only ``SparseEncoder`` needs torch. ``Index`` needs the extra ``jobs``; without it ``MissingExtraError`` says so.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names
from lsr_prod.telemetry import turn_off

if TYPE_CHECKING:
    from lsr_prod.errors import ConfigError, LsrError, QueryError
    from lsr_prod.indexing.text_index import Index
    from lsr_prod.model import SparseEncoder
    from lsr_prod.search import Hit, Searcher, SearchResult

__all__ = ["ConfigError", "Hit", "Index", "LsrError", "QueryError", "SearchResult", "Searcher", "SparseEncoder"]
__version__ = "0.1.0"

turn_off()  # before any module of the package imports a package that reports

_HOMES = {
    "ConfigError": "lsr_prod.errors",
    "Hit": "lsr_prod.search",
    "Index": "lsr_prod.indexing.text_index",
    "LsrError": "lsr_prod.errors",
    "QueryError": "lsr_prod.errors",
    "SearchResult": "lsr_prod.search",
    "Searcher": "lsr_prod.search",
    "SparseEncoder": "lsr_prod.model",
}


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
