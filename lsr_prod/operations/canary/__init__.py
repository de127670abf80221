"""Canary: two versions or models answer the same queries, and what changed is measured."""

from lsr_prod.operations.canary.canary import Canary, CanaryQuery, CanarySettings, read_queries, run_canary
from lsr_prod.operations.canary.changes import QueryChange, compare_rankings, rank_biased_overlap
from lsr_prod.operations.canary.sides import Judge, SideReport, open_side

__all__ = [
    "Canary",
    "CanaryQuery",
    "CanarySettings",
    "Judge",
    "QueryChange",
    "SideReport",
    "compare_rankings",
    "open_side",
    "rank_biased_overlap",
    "read_queries",
    "run_canary",
]
