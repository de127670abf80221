"""Retrieval training of one worker: a step from batch to updated weights, and the tensors of a checkpoint."""

from collections.abc import Mapping, Sequence

import torch

from lsr_prod.config.objective import QueryWeightsSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.extras import contrib
from lsr_prod.model import SparseEncoder
from lsr_prod.training import batches, data_sets, encoder_setup, process_group, replica, stage_trainer
from lsr_prod.training.data.training_set import SampleRows, TrainingSet
from lsr_prod.training.losses.ranking import chance_level
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.observers.activity import DeadTerms
from lsr_prod.training.retrieval.gradient import EncodedPart, MomentumQueue, StepPlan, StepResult, backward

DEAD_AFTER = 500
"""Steps without activation after which a term counts as dead."""


class Trainer(stage_trainer.StageTrainer):
    """Trainer of a fine-tuning stage on one worker."""

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet | SampleRows | Sequence[TrainingSet | SampleRows],
        settings: FinetuneSettings,
        group: process_group.Group,
        *,
        query_weights: torch.Tensor | None = None,
    ) -> None:
        if encoder.card.inference_free != (query_weights is not None):
            needed = "required" if encoder.card.inference_free else "not used"
            raise ValueError(f"query_weights are {needed} with query_encoder {encoder.card.query_encoder}")
        sets = list(data) if isinstance(data, Sequence) else [data]
        super().__init__(encoder, settings, group, *(one.rows for one in sets))
        self._settings, self._data = settings, data_sets.DataSets(sets, settings)
        queue = settings.objective.queue
        documents = encoder.document_encoder()
        self._negatives = None if queue is None else MomentumQueue(documents, queue, group)
        asked = None if encoder.queries is None else replica.Replica(encoder.queries, settings.scale.strategy, group)
        self._replica = replica.Replica(documents, settings.scale.strategy, group)
        self.encoder = encoder.train()
        self._optimizer = replica.OptimizerStep(encoder_setup.trained_module(encoder), settings.optimizer)
        self._objective = TrainingObjective(settings.objective, vocabulary=encoder.vocabulary, steps=self.steps)
        self.dead_terms = DeadTerms(encoder.card.vocabulary_size, window=DEAD_AFTER, device=group.device)
        weights = None if query_weights is None else query_weights.to(group.device)
        self._table: data_sets.QueryTable | None = None
        if weights is not None and encoder.card.query_encoder == "learned":
            factor = (settings.query_weights or QueryWeightsSettings()).learning_rate_factor
            self._table = data_sets.QueryTable(weights, settings.optimizer, factor=factor)
        fixed = None if weights is None else lambda: weights
        of_queries = fixed if self._table is None else self._table.weights
        # Pages that return cost time: only where the settings prefer memory to time.
        lean = group.device.type == "cpu" and settings.scale.gradient_checkpointing
        returned = contrib("cpu_training").return_free_memory if lean else None
        self._plan = StepPlan(group, settings.batch.chunk, self.bf16, settings.seed, of_queries, returned, asked)
        self._queue_documents = 0  # of the last step

    def train_step(self) -> StepResult:
        """Run the next step: batch, forward and backward pass, optimizer, observation."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = self._parts()
        queue = None if self._negatives is None else self._negatives.documents()
        self._queue_documents = 0 if queue is None else len(queue.keys)
        encoded = backward(self._replica, self._objective, parts, step=self.step, plan=self._plan, negatives=queue)
        norm = self._optimizer.apply()
        if self._table is not None:
            norm = torch.hypot(norm, self._table.apply(rate))
        if self._plan.return_memory is not None:
            self._plan.return_memory()
        self._observe(parts, encoded)
        self.step += 1
        tokens = sum(int(part.queries.attention_mask.sum() + part.documents.attention_mask.sum()) for part in parts)
        return StepResult.of(encoded, norm, rate, tokens)

    def _parts(self) -> list[batches.TrainBatch]:
        """Return this worker's batch of each part of the step."""
        batch, pad = self._settings.batch, self.encoder.model.config.pad_token_id or 0
        return [
            batches.make_batch(
                examples, rows, negatives=batch.negatives, seed=self._settings.seed, step=self.step, pad_id=pad,
                known_positives=known if self._settings.objective.mask_false_negatives else None,
            )
            for examples, rows, known in self._data.worker_rows(self.step, batch.accumulate, self._group)
        ]  # fmt: skip

    def _observe(self, parts: list[batches.TrainBatch], encoded: list[EncodedPart]) -> None:
        for one in encoded:
            self._objective.regularizers.observe(one.documents, self.step)
            self.dead_terms.observe(one.documents, self.step)
        if self._negatives is not None:
            for part in parts:
                self._negatives.push(part)
            self._negatives.follow(self._replica.encoder)

    def figures(self) -> dict[str, float | None]:
        """Return figures of all steps so far, and the chance level of the last one; a collective operation."""
        batch = self._settings.batch
        chance = chance_level(
            self._settings.objective, queries=batch.queries // batch.accumulate, documents=1 + batch.negatives,
            queue=self._queue_documents, workers=self._group.world,
        )  # fmt: skip
        figures = {"dead_terms": self.dead_terms.count(self.step - 1), "chance": chance}
        return {**figures, **self._data.figures(self.step)}

    def weights(self, keep: bool) -> dict[str, torch.Tensor]:
        """Return the trained parameters, and the learned weights of query terms."""
        weights = super().weights(keep)
        if keep and self._table is not None:
            weights[replica.QUERY_WEIGHTS] = self._table.weights().detach().cpu()
        return weights

    def _states(self) -> Mapping[str, stage_trainer.Tensors]:
        return {
            "loss": self._objective.regularizers.state().items(),
            "dead_terms": self.dead_terms.state().items(),
            "negatives": () if self._negatives is None else self._negatives.tensors(),
            **({} if self._table is None else {"query_table": self._table.state().items()}),
        }

    def load(self, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Restore the tensors of a checkpoint of ``step`` steps."""
        super().load(step, tensors)
        self._objective.regularizers.load_state(dict(tensors["loss"]))
        self.dead_terms.load_state(tensors["dead_terms"])
        if self._negatives is not None:
            self._negatives.load(tensors["negatives"])
        if self._table is not None:
            self._table.load_state(tensors["query_table"])
