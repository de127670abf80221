"""Tuners: hybrid weight and overlap threshold of an index, chosen on judged queries with cross-validation.

``candidates`` is the grid, ``refinement`` searches it, ``values`` measures candidates on an index,
``cross_validation`` estimates the value on other queries, ``tuner`` combines them, ``report`` writes the result.
"""

from lsr_prod.evaluation.tuning.report import TuneReport
from lsr_prod.evaluation.tuning.tuner import tune_index

__all__ = ["TuneReport", "tune_index"]
