"""The models of the pruning experiment: settings, training and measuring. What is done is kept and used again."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.train.pruning_data import Pair, training_data, training_set
from lsr_prod import SparseEncoder
from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import Encoded, LevelReport, evaluate
from lsr_prod.model import model_digest
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer

LEVELS = [(0, 0), (3, 8), (5, 10)]
THRESHOLDS = [0.0, 0.4, 0.6]
NONE, HARD, STRAIGHT_THROUGH = "jFLOPS", "jFLOPS + hard", "jFLOPS + straight-through"
FLOPS, THRESHOLD = "FLOPS", "jFLOPS + hard + threshold"
MEASURES = ["RR@10", "R@10"]
QUERY_LENGTH, DOCUMENT_LENGTH = 24, 48  # of training

log = logging.getLogger("lsr_prod.benchmarks")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is the same for all models of the experiment.

    Attributes:
        steps: of a training.
        queries: of a step.
        learning_rate: the highest.
        temperature: dot products are divided by it.
        flops: weights of FLOPS for queries and documents.
        joint: weight of joint FLOPS.
        pruned: weight of the pruned losses.
        pruned_levels: what they are pruned to.
        temperatures: of straight-through pruning, at the first and the last step.
        overlap: settings of the threshold-aware term.
    """

    steps: int = 150
    queries: int = 16
    learning_rate: float = 3e-4
    temperature: float = 1.0
    flops: tuple[float, float] = (0.015, 0.015)
    joint: float = 0.05
    pruned: float = 4.0
    pruned_levels: tuple[tuple[int, int], ...] = ((3, 8), (5, 10))
    temperatures: tuple[float, float] = (0.2, 0.05)
    overlap: Mapping[str, Any] = field(default_factory=lambda: {"qk": 7, "dk": 20, "weight": 12.0, "softness": 0.5})

    def objectives(self) -> dict[str, ObjectiveSettings]:
        """Name of a model -> what it minimises; nothing else differs."""
        losses = [{"loss": "info_nce", "temperature": self.temperature}]
        query, document = self.flops
        ramp = {"ramp": "quadratic"}
        flops = {"regularizers": [{"regularizer": "flops", "query": query, "document": document, **ramp}]}
        joint = {"regularizers": [{"regularizer": "joint_flops", "joint": self.joint, **ramp}]}
        hard = {"levels": self.pruned_levels, "weight": self.pruned, "gradient": "hard"}
        start, end = self.temperatures
        through = hard | {"gradient": "straight_through", "temperature_start": start, "temperature_end": end}
        found: dict[str, dict[str, Any]] = {
            NONE: {"sparsity": joint},
            HARD: {"sparsity": joint, "pruning": hard},
            STRAIGHT_THROUGH: {"sparsity": joint, "pruning": through},
            FLOPS: {"sparsity": flops},
            THRESHOLD: {"sparsity": joint, "pruning": hard, "overlap": self.overlap},
        }
        return {name: ObjectiveSettings.model_validate({"losses": losses, **one}) for name, one in found.items()}

    def stage(self, objective: ObjectiveSettings, data: TrainingDataSettings, seed: int) -> FinetuneSettings:
        """The stage that trains one model."""
        return FinetuneSettings.model_validate(
            {
                "data": data,
                "batch": {"queries": self.queries},
                "steps": self.steps,
                "objective": objective,
                "optimizer": {"learning_rate": self.learning_rate, "warmup_share": 0.1},
                "query_max_length": QUERY_LENGTH,
                "document_max_length": DOCUMENT_LENGTH,
                "seed": seed,
            }
        )


class Workshop:
    """A folder of trained models and of what was measured of them, by digest; an interrupted experiment goes on.

    Attributes:
        start: model directory that every training starts from.
    """

    def __init__(self, folder: Path, start: Path, pairs: list[Pair]) -> None:
        """Prepare the training set."""
        self._folder, self.start = folder, start
        for name in ("models", "results"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.data = training_data(pairs, folder / "pairs.jsonl")
        self._digest, self._set = training_set(
            self.data, start, folder, query_length=QUERY_LENGTH, document_length=DOCUMENT_LENGTH
        )

    def trained(self, stage: FinetuneSettings) -> Path:
        """The model directory of a stage."""
        made_from = stage.model_dump(mode="json", exclude={"data"})
        name = digest_json({"stage": made_from, "set": self._digest, "start": model_digest(self.start)})
        folder = self._folder / "models" / name
        if not folder.exists():
            train(SparseEncoder.load(self.start), self._set, stage).save(folder)
        return folder

    def measured(
        self, model: Path, collection: Collection, thresholds: Sequence[float] = THRESHOLDS
    ) -> list[LevelReport]:
        """Quality and cost of a model on a collection, at every level and threshold."""
        texts = [sorted(collection.documents.items()), sorted(collection.queries.items())]
        asked = [*texts, LEVELS, list(thresholds), MEASURES]
        file = self._folder / "results" / f"{digest_json([model_digest(model), asked])}.json"
        if not file.exists():
            reports = measure(SparseEncoder.load(model), collection, thresholds=thresholds)
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps([_to_json(report) for report in reports]))
            draft.rename(file)
        return [_from_json(value) for value in json.loads(file.read_text())]


def train(encoder: SparseEncoder, data: TrainingSet, stage: FinetuneSettings) -> SparseEncoder:
    """Train an encoder in this process."""
    start = time.perf_counter()
    trainer = Trainer(encoder, data, stage, Group(0, 1, torch.device("cpu")))
    while trainer.step < trainer.steps:
        result = trainer.train_step()
        if trainer.step % 50 == 0 or trainer.step == trainer.steps:
            queries, documents = result.vectors()
            fields = {
                "step": trainer.step,
                "l0_query": torch.count_nonzero(queries).item() / len(queries),
                "l0_document": torch.count_nonzero(documents).item() / len(documents),
                "seconds": round(time.perf_counter() - start, 1),
                **result.losses,
            }
            log.info("training", extra={"fields": fields})
    return trainer.encoder


def measure(
    encoder: SparseEncoder,
    collection: Collection,
    *,
    levels: Sequence[tuple[int, int]] = LEVELS,
    thresholds: Sequence[float] = THRESHOLDS,
    measures: Sequence[str] = MEASURES,
) -> list[LevelReport]:
    """Encode and search, at every level and threshold."""
    start = time.perf_counter()
    documents, queries = collection.documents, collection.queries
    reports = evaluate(
        Encoded(list(documents), encode(encoder, list(documents.values()), "document")),
        Encoded(list(queries), encode(encoder, list(queries.values()), "query")),
        collection.qrels,
        levels=levels,
        thresholds=thresholds,
        measures=measures,
    )
    fields = {"documents": len(documents), "seconds": round(time.perf_counter() - start, 1)}
    log.info("measured", extra={"fields": {**fields, **reports[0].measures}})
    return reports


def encode(encoder: SparseEncoder, texts: Sequence[str], kind: Kind) -> SparseBatch:
    """All vectors."""
    return encoder.encode(texts, kind, batch_size=64)


def _to_json(report: LevelReport) -> dict[str, Any]:
    return asdict(report) | {"by_query": {name: values.tolist() for name, values in report.by_query.items()}}


def _from_json(value: dict[str, Any]) -> LevelReport:
    return LevelReport(**value | {"by_query": {name: np.array(values) for name, values in value["by_query"].items()}})
