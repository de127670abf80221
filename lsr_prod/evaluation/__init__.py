"""Quality and cost of an index: measures, efficiency, run files, and validation during training."""

from lsr_prod.evaluation.evaluate import Evaluation, SystemReport, evaluate_index

__all__ = ["Evaluation", "SystemReport", "evaluate_index"]
