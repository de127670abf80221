"""Plan of a training chain: everything checked, nothing written."""

from dataclasses import dataclass
from pathlib import Path

from lsr_prod.config import Deployment, FinetuneSettings, TrainSettings
from lsr_prod.errors import ArtifactError, ConfigError, TrainingError
from lsr_prod.formats.card import CARD_FILE
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_folder, open_source, output_exists, refuse_file
from lsr_prod.training.loop.checkpoint_store import check_work
from lsr_prod.training.regularizers.joint_weight import joint_warnings
from lsr_prod.training.stage_record import load_record
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.registry import check_stage, errors_of_stage, stage_digest

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """A checked chain."""

    train: TrainSettings  # the section ``train``
    store: Store  # the work store
    pins: tuple[dict[str, str], ...]  # by stage, the digest of each input
    facts: tuple[ModelFacts, ...]  # facts of the model before each stage, and after the last one
    output: str  # absolute path or URI of the trained model
    start: Path  # folder of the model directory to start from
    digest: str  # digest of the model directory to start from
    # sentences about settings that are possible and probably wrong; they are logged, too
    warnings: tuple[str, ...] = ()


def plan_chain(deployment: Deployment, scratch: Path) -> ChainPlan:
    """Check all settings and inputs of a chain; nothing is written but to ``scratch``."""
    train, options = deployment.train, deployment.storage.options
    assert train is not None
    store = Store(absolute(train.work), options)
    refuse_file("train.work", train.work)
    check_work(store)
    exists = output_exists("train.output", train.output, options)
    start, digest, encoder = _start(train.model, options, scratch)
    facts, pins, warnings = [ModelFacts.of(encoder, start)], [], []
    for number, stage in enumerate(train.stages):
        with errors_of_stage(number):
            read, after = check_stage(stage, train, facts[-1], options)
            pins.append(read)
            facts.append(after)
        if isinstance(stage, FinetuneSettings):
            warnings += [f"train.stages.{number}.{sentence}" for sentence in joint_warnings(stage)]
    for sentence in warnings:
        log.warning(sentence)
    plan = ChainPlan(train, store, tuple(pins), tuple(facts), absolute(train.output), start, digest, tuple(warnings))
    if exists and model_digest(open_folder(train.output, options)) != finished_model(plan):
        raise ConfigError("train.output", f"{train.output} holds something else", "name a folder that does not exist")
    return plan


def _start(model: str, options: dict[str, str], scratch: Path) -> tuple[Path, str, SparseEncoder]:
    """Return folder, digest and encoder of the model to start from; other models are saved as model directories."""
    try:
        model = open_source(model, options)
        encoder = SparseEncoder.load(model)
    except (ConfigError, ArtifactError) as error:
        problem = error.problem if isinstance(error, ConfigError) else str(error)
        raise ConfigError("train.model", problem, "give a masked language model with its vocabulary head") from error
    if (Path(model) / CARD_FILE).is_file():
        return Path(model), model_digest(Path(model)), encoder
    return scratch / "model", encoder.save(scratch / "model"), encoder


def finished_model(plan: ChainPlan) -> str | None:
    """Return the digest of the model that an earlier run of the chain finished; None: not all stages are finished."""
    model = plan.digest
    for stage, pins in zip(plan.train.stages, plan.pins, strict=True):
        record = load_record(plan.store, stage_digest(stage, pins, model))
        if record is None:
            return None
        model = record.model
    return model


def check_unchanged(plan: ChainPlan, number: int) -> None:
    """Verify that the inputs of a stage are those that its digest covers."""
    problem = "has changed since the job started"
    try:
        with errors_of_stage(number):
            pins, _ = check_stage(plan.train.stages[number], plan.train, plan.facts[number], plan.store.options)
    except ConfigError as error:
        pins, problem = {}, error.problem
    if pins != plan.pins[number]:
        changed = next((name for name, pin in plan.pins[number].items() if pins.get(name) != pin), "data")
        raise TrainingError(f"train.stages.{number}: {changed} {problem}; run the job again to resume")
