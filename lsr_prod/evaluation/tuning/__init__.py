"""Tuners: hybrid weight and overlap threshold of an index, chosen on judged queries with cross-validation.

``candidates`` is the grid, ``refinement`` searches it, ``cross_validation`` estimates the value on other queries,
``tuner`` runs the searches of an index and reports.
"""

from lsr_prod.evaluation.tuning.tuner import TuneReport, tune_index

__all__ = ["TuneReport", "tune_index"]
