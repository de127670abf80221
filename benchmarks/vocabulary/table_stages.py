"""The settings of the vocabulary table: how large everything is, its jobs, and the chain of stages of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.train.pruning_models import DOCUMENT_LENGTH, QUERY_LENGTH
from lsr_prod.config.language import AdaptMlmSettings
from lsr_prod.config.model import CalibrateSettings, TransferVocabularySettings
from lsr_prod.config.section import Section
from lsr_prod.config.training import FinetuneSettings
from quickstart.models import model_folder

STAYS = "cased, no transfer"
WIKITEXT, DOCUMENTS = "wikitext.jsonl", "documents.jsonl"  # texts that stages read from files


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large everything is.

    Attributes:
        pretrain: steps that make the toy.
        adapt: steps of the adaptation.
        steps: of a fine-tuning.
        texts: of a step of modelling.
        length: tokens of such a text.
        pairs: of a step of fine-tuning.
        queries: of a collection.
        documents: of a collection.
    """

    pretrain: int = 1000
    adapt: int = 100
    steps: int = 60
    texts: int = 32
    length: int = 64
    pairs: int = 32
    queries: int = 300
    documents: int = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """Two fine-tunings from one start: as it is, and after APC.

    Attributes:
        strategy: how rows of the new vocabulary are made; ``STAYS``: the old one is kept.
        adapted: masked language modelling comes before.
        seed: of drawn rows, and of the order of what is trained on.
    """

    strategy: str
    adapted: bool
    seed: int

    @property
    def row(self) -> str:
        """The row of the table that it is a seed of."""
        return STAYS if self.strategy == STAYS else f"{self.strategy}, {'adapted' if self.adapted else 'direct'}"


@dataclass(frozen=True, slots=True)
class Stages:
    """The settings of a job; a stage that it does without is None."""

    transfer: TransferVocabularySettings | None
    adapt: AdaptMlmSettings | None
    calibrate: CalibrateSettings
    finetune: FinetuneSettings

    def to_json(self) -> dict[str, Any]:
        """All that decides weights but the data, which ``Sizes`` and seed say."""
        found = {"transfer": self.transfer, "adapt": self.adapt, "calibrate": self.calibrate, "finetune": self.finetune}
        return {name: None if stage is None else digested(stage) for name, stage in found.items()}


def pretraining(sizes: Sizes) -> AdaptMlmSettings:
    """What makes the toy."""
    return _modelling(sizes, sizes.pretrain, 2e-3, seed=0, trained="all", new_token_weight=1)


def stages_of(job: Job, sizes: Sizes, work: Path) -> Stages:
    """The chain of a job; rates and weights are ours, for so small a model and so few steps."""
    moves = {
        "stage": "transfer_vocabulary",
        "target": str(model_folder("minilm")),
        "initialization": job.strategy,
        "bias": "unigrams",  # MiniLM has no head to take one from
        "unigrams": {"paths": [str(work / WIKITEXT)], "kind": "texts"},
        "unigram_texts": 5000,
        "seed": job.seed,
    }
    apc = {
        "stage": "calibrate",
        "activation_rate": 0.4,
        "negative_shift": "allow",  # APC on and off are compared for every initialization
        "data": {"paths": [str(work / DOCUMENTS)], "kind": "texts"},
        "texts": 64,
        "max_length": DOCUMENT_LENGTH,
    }
    finetune = {
        "data": {"paths": ["none"], "kind": "pairs"},
        "batch": {"queries": sizes.pairs},
        "steps": sizes.steps,
        "objective": {
            # Dot products of thousands of active terms saturate the softmax, and all texts become alike.
            "losses": [{"loss": "info_nce", "similarity": "cosine"}],
            "sparsity": {
                "regularizers": [{"regularizer": "flops", "query": 1e-4, "document": 1e-4, "ramp": "quadratic"}]
            },
        },
        "optimizer": {"learning_rate": 1e-3, "warmup_share": 0.1},
        "query_max_length": QUERY_LENGTH,
        "document_max_length": DOCUMENT_LENGTH,
        "seed": job.seed,
    }
    return Stages(
        None if job.strategy == STAYS else TransferVocabularySettings.model_validate(moves),
        _modelling(sizes, sizes.adapt, 1e-3, seed=job.seed, trained="embeddings", new_token_weight=2)
        if job.adapted
        else None,
        CalibrateSettings.model_validate(apc),
        FinetuneSettings.model_validate(finetune),
    )


def digested(stage: Section) -> dict[str, Any]:
    """Without paths: where data lies decides nothing."""
    return stage.model_dump(mode="json", exclude={"data", "unigrams", "target"})


def _modelling(sizes: Sizes, steps: int, learning_rate: float, **changes: Any) -> AdaptMlmSettings:
    stage = {
        "stage": "adapt_mlm",
        "data": {"paths": ["none"], "kind": "texts"},
        "batch": {"texts": sizes.texts},
        "steps": steps,
        "max_length": sizes.length,
        "mask_rate": 0.3,
        "optimizer": {"learning_rate": learning_rate, "schedule": "cosine", "warmup_share": 0.1},
    }
    return AdaptMlmSettings.model_validate({**stage, **changes})
