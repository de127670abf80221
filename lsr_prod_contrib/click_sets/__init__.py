"""Evaluation sets and training pairs from click logs (ESPLADE pre-training, 3.5 and C.1).

``job`` runs the whole: ``read`` and ``rows`` read and validate the log, ``log`` merges it, ``relevant`` decides what is
relevant, ``clusters`` groups queries, ``roles`` gives queries to the sets, ``evaluation_set`` draws queries with
``thirds`` and finds negatives with ``lexical`` and ``duplicates``, ``files`` writes and ``leaks`` checks what was
written. ``hashing`` orders every draw: rows may come in any order.
"""

from lsr_prod_contrib.click_sets.build import ClickSets, build_sets
from lsr_prod_contrib.click_sets.job import find_leaks

__all__ = ["ClickSets", "build_sets", "find_leaks"]
