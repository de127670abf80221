"""Trainers of the two kinds of loops, retrieval and language modeling, by the settings of a stage."""

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.language.objectives import make_objective
from lsr_prod.training.language.trainer import LanguageTrainer
from lsr_prod.training.loop.job import LoopInputs
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.query_weights import initial_weights
from lsr_prod.training.regularizers.ramp import ramp_end
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stage_trainer import StageTrainer
from lsr_prod.training.steps import LoopSettings
from lsr_prod.training_data.training_set import TrainingSet


def make_trainer(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, group: Group
) -> StageTrainer:
    """Create the trainer of a stage, at step 0."""
    data = TrainingSet.open(work, inputs.training_set)
    if isinstance(stage, FinetuneSettings):
        weights = initial_weights(encoder, inputs.term_counts, work)
        further = [TrainingSet.open(work, digest) for digest in inputs.further_sets]
        return Trainer(encoder, [data, *further], stage, group, query_weights=weights)
    teacher = None if inputs.teacher is None else fetch_artifact(work, f"models/{inputs.teacher}")
    objective = make_objective(stage, encoder, new_tokens=inputs.new_tokens, teacher=teacher)
    return LanguageTrainer(encoder, data, stage, group, objective)


def ramps_end(stage: LoopSettings, steps: int) -> int:
    """Return the first step at which all regularizers have their full weights."""
    if isinstance(stage, LanguageSettings):
        return 0
    return max((ramp_end(one, steps) for one in stage.objective.sparsity.regularizers), default=0)
