"""Quality and cost of a published index: measures, efficiency, run files."""

from lsr_prod.evaluation.evaluate import SystemReport, evaluate_index

__all__ = ["SystemReport", "evaluate_index"]
