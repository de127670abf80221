"""Quality and cost of an index: measures, efficiency, run files, and validation during training."""

from lsr_prod.evaluation.comparisons import Comparison
from lsr_prod.evaluation.cost import Efficiency
from lsr_prod.evaluation.evaluate import Evaluation, SystemReport, evaluate_index

__all__ = ["Comparison", "Efficiency", "Evaluation", "SystemReport", "evaluate_index"]
