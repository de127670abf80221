"""Plan of a training chain: everything checked, nothing written."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from lsr_prod.config import Deployment, FinetuneSettings, RaySettings, TrainSettings, language
from lsr_prod.errors import ArtifactError, ConfigError, TrainingError
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_folder, open_source, output_exists, refuse_file
from lsr_prod.storage.formats.bundle_format import CARD_FILE
from lsr_prod.training import lineage, regularizers
from lsr_prod.training.loop.checkpoint import check_work
from lsr_prod.training.stages.registry import check_stage, errors_of_stage, stage_digest
from lsr_prod.training.stages.stage_facts import ModelFacts

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
            warnings += [f"train.stages.{number}.{sentence}" for sentence in regularizers.joint_warnings(stage)]
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
        record = lineage.load_record(plan.store, stage_digest(stage, pins, model))
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


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and GPUs of one machine of the cluster."""

    cores: float
    gpus: float


def machines() -> list[Machine]:
    """Return the machines of the connected cluster that have cores."""
    found = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return [Machine(one["CPU"], one.get("GPU", 0)) for one in found if one.get("CPU", 0) >= 1]


def with_resources(train: TrainSettings, settings: RaySettings, accepts: Callable[[int], bool]) -> TrainSettings:
    """Return the settings with all resources chosen, and log them in one line; needs a connection to Ray.

    On a local cluster, ``OMP_NUM_THREADS`` limits the cores that are chosen; in a submitted job Ray sets it by itself.
    """
    local = not (settings.address or os.environ.get("RAY_ADDRESS"))
    threads = os.environ.get("OMP_NUM_THREADS", "") if local else ""
    found = machines()
    chosen = choose_resources(train, found, accepts, int(threads) if threads.isdecimal() else None)
    workers, cores = chosen.workers or 1, chosen.cpus_per_worker or 1
    of_gpus = f" and 1 GPU each (of {sum(one.gpus for one in found):g} GPUs)" if chosen.use_gpu else ""
    each = f"{cores:g} core{'' if cores == 1 else 's'}{' each' if workers > 1 else ''}"
    every = sum(machine.cores for machine in found)
    message = f"training on {workers} worker{'' if workers == 1 else 's'} with {each} (of {every:g}){of_gpus}"
    log.info(message, extra={"fields": {"workers": workers, "cores_per_worker": cores, "use_gpu": chosen.use_gpu}})
    return chosen


def choose_resources(
    train: TrainSettings, found: Sequence[Machine], accepts: Callable[[int], bool], threads: int | None = None
) -> TrainSettings:
    """Return the settings with ``use_gpu``, ``workers`` and ``cpus_per_worker`` where they are unset.

    With GPUs there is one worker per GPU, else one worker per machine: the threads of a worker share one copy of the
    model and exchange no gradients. The cores of the machines are divided evenly among the workers.
    """
    gpus = int(sum(machine.gpus for machine in found))
    use_gpu = gpus >= max(1, train.workers or 1) if train.use_gpu is None else train.use_gpu
    trained = [one for one in train.stages if isinstance(one, FinetuneSettings | language.LanguageSettings)]
    if not use_gpu and any(one.scale.attention == "flash" for one in trained):
        raise ConfigError("scale.attention", "flash needs GPUs, and none are used", "leave it out")
    workers = train.workers
    if workers is None:
        most = max(1, gpus if use_gpu else len(found))
        workers = next((number for number in range(most, 1, -1) if accepts(number)), 1)
        if train.min_workers is not None and train.min_workers > workers:
            problem = f"it is {train.min_workers}, but this cluster has room for {workers}"
            raise ConfigError("train.min_workers", problem, "lower it, or set train.workers")
    cores = train.cpus_per_worker
    if cores is None:
        cores = _cores(workers, found, use_gpu)
        cores = float(min(cores, threads) if threads else cores)
    return train.model_copy(update={"use_gpu": use_gpu, "workers": workers, "cpus_per_worker": cores})


def _cores(workers: int, found: Sequence[Machine], use_gpu: bool) -> int:
    """Return the largest number of cores per worker with which all workers have room on the machines, at least 1."""

    def room(cores: int) -> float:
        return sum(min(machine.cores // cores, machine.gpus if use_gpu else workers) for machine in found)

    most = int(max((machine.cores for machine in found), default=1))
    return next((cores for cores in range(most, 1, -1) if room(cores) >= workers), 1)
