"""Training chain: a model is trained stage by stage; finished stages are skipped, an interrupted stage is resumed.

The work store of a chain::

    models/<model digest>      every model, including the one that the chain starts from
    stages/<stage digest>.json record of a finished stage: its model, parent, settings, inputs and figures
    runs/<stage digest>        checkpoints and logs of a stage
    sets/<set digest>          training sets

The digest of a stage covers the model that it starts from, its settings and the content of its inputs. A stage with a
record is skipped; a stage that was changed runs again, and so do the stages after it.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

from lsr_prod import __version__, errors, logs
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings, StageSettings, TrainSettings
from lsr_prod.model import directory, model_card
from lsr_prod.storage import artifacts, disk, drafts, folders, is_remote
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.training.chain_plan import ChainPlan, check_unchanged, finished_model, plan_chain, with_resources
from lsr_prod.training.lineage import StageRecord, load_record, save_record, write_lineage
from lsr_prod.training.loop.worker_job import StageRun
from lsr_prod.training.stages import registry, stage_facts

log = logs.get_log(__name__)


def run_chain(deployment: Deployment) -> dict[str, Any]:
    """Run the unfinished stages of ``train``, deliver the model of the last stage, and return a summary.

    Everything is checked before anything is written. After a kill at any moment, the next call resumes.
    """
    started = time.monotonic()
    with disk.scratch_folder() as scratch:
        plan = plan_chain(deployment, scratch)
        done = finished_model(plan) is not None
        with nullcontext(plan.train) if done else ray_for(plan.train, deployment.ray) as train:
            artifacts.put_artifact(plan.store, f"models/{plan.digest}", plan.start)
            rows = _run_stages(replace(plan, train=train))
    model = rows[-1]["model"]
    _deliver(plan, model)
    notes = (f"train.stages.{row['number']}: {row['note']}" for row in rows if "note" in row)
    return {
        "output": plan.output,
        "model_digest": model,
        "start_digest": plan.digest,
        "stages": len(rows),
        "stages_skipped": sum(row["skipped"] for row in rows),
        "seconds": time.monotonic() - started,
        "warnings": [*plan.warnings, *notes],
        "stage_rows": rows,
    }


@contextmanager
def ray_for(train: TrainSettings, settings: RaySettings) -> Iterator[TrainSettings]:
    """Open a Ray session, and yield the settings with workers, cores and GPUs.

    A local cluster must have room for all workers, or Ray Train would wait forever.
    """
    with ray_session(settings):
        train = with_resources(train, settings, lambda workers: registry.accepts_workers(train.stages, workers))
        assert train.workers is not None
        assert train.cpus_per_worker is not None
        if not (settings.address or os.environ.get("RAY_ADDRESS")):
            workers = train.min_workers or train.workers
            has = ray.cluster_resources()  # type: ignore[no-untyped-call]
            wanted = {"CPU": workers * train.cpus_per_worker, "GPU": workers * bool(train.use_gpu)}
            for kind, field in (("CPU", "cpus_per_worker"), ("GPU", "use_gpu")):
                if wanted[kind] > has.get(kind, 0):
                    raise errors.ConfigError(
                        f"train.{field}",
                        f"{workers} workers need {wanted[kind]:g} {kind}, but this machine has {has.get(kind, 0):g}",
                        "request less, or set ray.address to a cluster",
                    )
        yield train


def _run_stages(plan: ChainPlan) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    model = plan.digest
    for number, (stage, pins) in enumerate(zip(plan.train.stages, plan.pins, strict=True)):
        name = registry.stage_digest(stage, pins, model)
        facts = {"number": number, "kind": stage.stage, "stage": name, "parent": model}
        record = load_record(plan.store, name)
        skipped = record is not None
        if record is None:
            log.info("stage started", extra={"fields": facts})
            if not all(before["skipped"] for before in rows):  # the stages before it may have taken days
                check_unchanged(plan, number)
            record = _run(plan, number, name, model)
        elif not artifacts.has_artifact(plan.store, f"models/{record.model}"):
            raise errors.ArtifactError(
                f"{plan.store.uri}/models/{record.model}, the model of stage {number}, was deleted; "
                f"delete stages/{name}.json to train it again"
            )
        log.info("stage skipped" if skipped else "stage finished", extra={"fields": {**facts, "model": record.model}})
        rows.append({**facts, "model": record.model, "skipped": skipped, **record.summary})
        model = record.model
    return rows


def _run(plan: ChainPlan, number: int, name: str, parent: str) -> StageRecord:
    """Run one stage, store its model, then write its record."""
    stage, started = plan.train.stages[number], time.monotonic()
    with _scratch(plan.output) as scratch:
        folder = scratch / "model"
        with _started(), registry.errors_of_stage(number):
            summary = run_stage(stage, StageRun(plan.train, parent, name, folder, plan.store.options))
        training = {
            "stage": stage.stage,
            "stage_digest": name,
            "settings": registry.identity(stage),
            "pins": plan.pins[number],
            **{key: summary[key] for key in ("training_set", "rows", "steps", "note") if key in summary},
            # A cluster that runs a submitted checkout has no installed lsr_prod.
            "versions": {"lsr_prod": __version__, "torch": version("torch"), "transformers": version("transformers")},
        }
        parents = EncoderCard.load(artifacts.fetch_artifact(plan.store, f"models/{parent}", verify=False)).parents
        model_card.write_model_card(folder, training, summary)
        model = write_lineage(folder, parent=parent, parents=parents, training=training)
        artifacts.put_artifact(plan.store, f"models/{model}", folder)
    seconds = round(time.monotonic() - started, 3)
    return save_record(plan.store, name, StageRecord(model, parent, training, {"seconds": seconds, **summary}))


def run_stage(stage: StageSettings, job: StageRun) -> Mapping[str, Any]:
    """Run a stage, or resume it after an interruption. Needs a Ray session."""
    summary = registry.REGISTRY[stage.stage].run(registry.local_inputs(stage, job.options), job)
    record = artifacts.fetch_artifact(job.work, f"models/{job.start}", verify=False) / stage_facts.TRANSFER_FILE
    if record.is_file() and not (job.output / stage_facts.TRANSFER_FILE).exists():
        drafts.write_file(
            job.output / stage_facts.TRANSFER_FILE, record.read_bytes()
        )  # later stages of the chain read it
    return summary


@contextmanager
def _scratch(output: str) -> Iterator[Path]:
    """Yield an empty folder: on the disk of a local output, else in the folder of temporary files."""
    if is_remote(output):
        with disk.scratch_folder() as folder:
            yield folder
        return
    with drafts.Draft(Path(output)) as draft:
        yield draft.folder


def _deliver(plan: ChainPlan, model: str) -> None:
    """Copy a model to the output, atomically."""
    source = artifacts.fetch_artifact(plan.store, f"models/{model}")
    if is_remote(plan.output):
        folders.save_folder(source, plan.output, plan.store.options)
        return
    with drafts.Draft(Path(plan.output)) as draft:
        drafts.copy_tree(source, draft.folder)
        with _started():
            directory.seal_directory(draft, field="train.output")


@contextmanager
def _started() -> Iterator[None]:
    """Turn configuration errors of a started job, such as a batch larger than the valid rows, into training errors."""
    try:
        yield
    except errors.ConfigError as error:
        raise errors.TrainingError(str(error)) from error
