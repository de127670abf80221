"""``run_chain``: from a model to a trained model, stage by stage; what was done is skipped, what was begun goes on.

The work store of a chain::

    models/<model digest>      every model, the one it starts from included
    stages/<stage digest>.json what a finished stage made, of what, with which settings, and its figures
    runs/<stage digest>        checkpoints and logs of a stage
    sets/<set digest>          training sets

A stage's digest covers the model that it starts from, its settings and the content of what it reads. A stage whose
record is there is skipped; one that was changed runs again, and so do those after it.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings, TrainSettings
from lsr_prod.errors import ArtifactError, ConfigError, TrainingError
from lsr_prod.formats.card import CARD_FILE, EncoderCard
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.directory import seal_directory
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.artifacts import fetch_artifact, has_artifact, put_artifact
from lsr_prod.storage.drafts import Draft, copy_tree
from lsr_prod.training.lineage import write_lineage
from lsr_prod.training.loop.checkpoint_store import check_work
from lsr_prod.training.stage_record import StageRecord, load_record, save_record
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.registry import check_stage, errors_of_stage, identity, run_stage, stage_digest
from lsr_prod.training.stages.stage import StageRun

__all__ = ["ray_for", "run_chain"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chain:
    """What is known once everything is checked and nothing is written.

    Attributes:
        train: the section ``train``.
        store: the work store.
        pins: what each stage reads.
        output: the local folder that the model goes to.
        start: folder of the model directory to start from.
        digest: its digest.
    """

    train: TrainSettings
    store: Store
    pins: tuple[dict[str, str], ...]
    facts: tuple[ModelFacts, ...]
    output: Path
    start: Path
    digest: str


def run_chain(deployment: Deployment) -> Mapping[str, Any]:
    """Run the stages of ``train`` that are not done yet, and put the last one's model into its place.

    Everything is checked before anything is written. Killed at any moment, the next call goes on.

    Args:
        deployment: sections ``train``, ``ray`` and ``storage``.

    Returns:
        A flat summary; ``stage_rows`` has one mapping for each stage.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
        SourceError: the collection of a validation is broken; nothing was written.
        MissingExtraError: a package that the settings ask for is not installed; nothing was written.
        TrainingError: a training cannot go on, for its data changed or a setting proved wrong when some of it was done.
        ArtifactError: something in the work store is missing or damaged.
        StorageError: the work store fails.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        chain = _check(deployment, Path(scratch))
        done = _known_result(chain) is not None
        with nullcontext() if done else ray_for(chain.train, deployment.ray):
            put_artifact(chain.store, f"models/{chain.digest}", chain.start)
            rows = _run_stages(chain)
    model = str(rows[-1]["model"])
    _deliver(chain, model)
    return {
        "output": str(chain.output),
        "model_digest": model,
        "start_digest": chain.digest,
        "stages": len(rows),
        "stages_skipped": sum(bool(row["skipped"]) for row in rows),
        "seconds": time.monotonic() - started,
        "stage_rows": rows,
    }


@contextmanager
def ray_for(train: TrainSettings, settings: RaySettings) -> Iterator[None]:
    """A Ray session with room for the workers, for which Ray Train would wait for ever; a cluster elsewhere may grow.

    Raises:
        ConfigError: this machine has too few cores or GPUs, or the address does not answer.
    """
    with ray_session(settings):
        if not (settings.address or os.environ.get("RAY_ADDRESS")):
            workers = train.min_workers or train.workers
            has = ray.cluster_resources()  # type: ignore[no-untyped-call]
            wanted = {"CPU": workers * train.cpus_per_worker, "GPU": workers * train.use_gpu}
            for kind, field in (("CPU", "cpus_per_worker"), ("GPU", "use_gpu")):
                if wanted[kind] > has.get(kind, 0):
                    raise ConfigError(
                        f"train.{field}",
                        f"{workers} workers want {wanted[kind]:g} {kind}, this machine has {has.get(kind, 0):g}",
                        "ask for less, or name a cluster in ray.address",
                    )
        yield


def _check(deployment: Deployment, scratch: Path) -> _Chain:
    train, options = deployment.train, deployment.storage.options
    assert train is not None
    store = Store(train.work if is_remote(train.work) else str(Path(train.work).absolute()), options)
    if not is_remote(train.work) and Path(train.work).exists() and not Path(train.work).is_dir():
        raise ConfigError("train.work", f"{train.work} is a file", "name a folder")
    check_work(store)
    output = _local_output(train.output)
    start, digest, encoder = _start(train.model, scratch)
    facts, pins = [ModelFacts.of(encoder, start)], []
    for number, stage in enumerate(train.stages):
        with errors_of_stage(number):
            read, after = check_stage(stage, train, facts[-1], options)
            pins.append(read)
            facts.append(after)
    chain = _Chain(train, store, tuple(pins), tuple(facts), output, start, digest)
    if output.is_dir() and any(output.iterdir()) and model_digest(output) != _known_result(chain):
        raise ConfigError("train.output", f"{output} holds something else", "name a folder that does not exist")
    return chain


def _local_output(output: str) -> Path:
    if is_remote(output):
        raise ConfigError("train.output", f"{output} is an object store", "name a local folder; the export reads it")
    path = Path(output).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError("train.output", f"{path} is a file", "name a folder that does not exist")
    return path


def _start(model: str, scratch: Path) -> tuple[Path, str, SparseEncoder]:
    """The model directory to start from, its digest, and what it holds; another kind of folder is saved as one."""
    try:
        encoder = SparseEncoder.load(model)
    except (ConfigError, ArtifactError) as error:
        problem = error.problem if isinstance(error, ConfigError) else str(error)
        raise ConfigError("train.model", problem, "give a masked language model with its vocabulary head") from error
    if (Path(model) / CARD_FILE).is_file():
        return Path(model), model_digest(Path(model)), encoder
    return scratch / "model", encoder.save(scratch / "model"), encoder


def _known_result(chain: _Chain) -> str | None:
    """Digest of the model that the chain made in an earlier run; None: it was not finished."""
    model = chain.digest
    for stage, pins in zip(chain.train.stages, chain.pins, strict=True):
        record = load_record(chain.store, stage_digest(stage, pins, model))
        if record is None:
            return None
        model = record.model
    return model


def _run_stages(chain: _Chain) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    model = chain.digest
    for number, (stage, pins) in enumerate(zip(chain.train.stages, chain.pins, strict=True)):
        name = stage_digest(stage, pins, model)
        fields = {"number": number, "kind": stage.stage, "stage": name, "parent": model}
        record = load_record(chain.store, name)
        skipped = record is not None
        if record is None:
            log.info("stage begins", extra={"fields": fields})
            if not all(row["skipped"] for row in rows):  # the stages before it may have taken days
                _check_unchanged(chain, number)
            record = _run(chain, number, name, model)
        elif not has_artifact(chain.store, f"models/{record.model}"):
            raise ArtifactError(
                f"{chain.store.uri}/models/{record.model}, which stage {number} made, is gone; "
                f"delete stages/{name}.json to train it again"
            )
        log.info("stage skipped" if skipped else "stage done", extra={"fields": {**fields, "model": record.model}})
        model = record.model
        rows.append({**fields, "model": model, "skipped": skipped, **record.summary})
    return rows


def _check_unchanged(chain: _Chain, number: int) -> None:
    """Hold what a stage reads against what it was when the job began, by which the stage is named.

    Raises:
        TrainingError: it is another, or gone.
    """
    problem = "is another than when the job began"
    try:
        with errors_of_stage(number):
            pins, _ = check_stage(chain.train.stages[number], chain.train, chain.facts[number], chain.store.options)
    except ConfigError as error:
        pins, problem = {}, error.problem
    if pins != chain.pins[number]:
        changed = next((name for name, pin in chain.pins[number].items() if pins.get(name) != pin), "data")
        raise TrainingError(f"train.stages.{number}: {changed} {problem}; run the job again, it goes on from here")


def _run(chain: _Chain, number: int, name: str, parent: str) -> StageRecord:
    """Run one stage, keep its model, then write its record."""
    stage, started = chain.train.stages[number], time.monotonic()
    with Draft(chain.output) as draft:
        folder = draft.folder / "model"
        with _begun(), errors_of_stage(number):
            summary = run_stage(stage, StageRun(chain.train, parent, name, folder, chain.store.options))
        figures = {key: summary[key] for key in ("training_set", "rows", "steps") if key in summary}
        training = {
            "stage": stage.stage,
            "stage_digest": name,
            "settings": identity(stage),
            "pins": chain.pins[number],
            **figures,
            "versions": {package: version(package) for package in ("lsr_prod", "torch", "transformers")},
        }
        parents = EncoderCard.load(fetch_artifact(chain.store, f"models/{parent}", verify=False)).parents
        model = write_lineage(folder, parent=parent, parents=parents, training=training)
        put_artifact(chain.store, f"models/{model}", folder)
    seconds = round(time.monotonic() - started, 3)
    return save_record(chain.store, name, StageRecord(model, parent, training, {"seconds": seconds, **summary}))


def _deliver(chain: _Chain, model: str) -> None:
    """Copy the last model to its place, whole or not at all."""
    source = fetch_artifact(chain.store, f"models/{model}")
    with Draft(chain.output) as draft:
        copy_tree(source, draft.folder)
        with _begun():
            seal_directory(draft, field="train.output")


@contextmanager
def _begun() -> Iterator[None]:
    """A setting that proves wrong only now, such as a batch of more queries than there are good rows, fails the job.

    Raises:
        TrainingError: in the words of the ConfigError, which would promise that nothing was written.
    """
    try:
        yield
    except ConfigError as error:
        raise TrainingError(str(error)) from error
