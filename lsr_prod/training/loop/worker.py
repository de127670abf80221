"""Training process under Ray Train: join the other workers, resume from the last checkpoint, train to the end.

All joint decisions of the workers (stop, save, validate) follow from the step, or from values that are equal on all
workers.
"""

import contextlib
import gc
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.util
import torch
import torch.distributed as dist
from ray.train.collective import broadcast_from_rank_zero

from lsr_prod import errors, logs
from lsr_prod.config.training import FinetuneSettings, LoopSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import artifacts, disk, drafts
from lsr_prod.training import encoder_setup, replica
from lsr_prod.training.loop.checkpoint import (
    REPORTS_FILE,
    Checkpoint,
    open_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from lsr_prod.training.loop.rate import find_rate
from lsr_prod.training.loop.result import Best
from lsr_prod.training.loop.worker_job import (
    ValidationResult,
    WorkerJob,
    load_start,
    make_trainer,
    make_validator,
    ramps_end,
)
from lsr_prod.training.observers.activity import CollapseGuard, check_numbers
from lsr_prod.training.observers.reports import Reporter
from lsr_prod.training.observers.throughput import ModelWork, ThroughputMeter, known_peak, measured_peak
from lsr_prod.training.process_group import Group, largest_of_workers, process_group
from lsr_prod.training.stage_trainer import StageTrainer, StepOutcome

log = logs.get_log(__name__)

_EVERY_S = 2.0  # preemptions are announced at least half a minute ahead
Validate = Callable[[SparseEncoder], ValidationResult]


def train_worker(job: WorkerJob) -> errors.LsrError | None:
    """Train from the last checkpoint, or from the start, to the end; Ray Train calls it on each worker.

    Returned is an error that ends the training, equal on every worker. After an error that is raised, Ray Train starts
    all workers again. A collapse is found by all workers. A full disk, a tracker that cannot be opened, or a model that
    cannot be validated is met by one, while the others wait for it: the error is raised, and the workers that are
    started next return it.
    """
    ended: errors.LsrError | None = ray.get(job.progress.ended.remote())
    if ended is not None:
        return ended
    try:
        return _train(job)
    except (errors.ConfigError, errors.DiskFullError, errors.EncoderError) as error:
        ray.get(job.progress.end.remote(error))
        raise


def _train(job: WorkerJob) -> errors.TrainingCollapsedError | None:
    torch.set_num_threads(job.threads)
    context = ray.train.get_context()
    with (
        process_group(
            context.get_world_rank(),
            context.get_world_size(),
            use_gpu=bool(job.run.train.use_gpu),
            address=ray.util.get_node_ip_address(),  # type: ignore[no-untyped-call]
            share=broadcast_from_rank_zero,
        ) as group,
        disk.scratch_folder() as scratch,
    ):
        try:
            _Run(job, group, scratch).train()
        except errors.TrainingCollapsedError as collapse:
            return collapse
    return None


class _Run:
    """Run of a stage on one worker."""

    def __init__(self, job: WorkerJob, group: Group, scratch: Path) -> None:
        self._job, self._group, self._scratch, self._first = job, group, scratch, group.rank == 0
        self._work = job.run.work
        self._model = artifacts.fetch_artifact(self._work, f"models/{job.run.start}")
        listed = ray.train.get_checkpoint()
        checkpoint = listed or job.unlisted
        rate = self._find_rate() if job.stage.optimizer.learning_rate == "auto" and checkpoint is None else None
        self._trainer = self._make(job.stage)
        if rate is not None:
            self._trainer.full_rate = rate
        steps = self._trainer.steps
        self._guard = CollapseGuard(
            job.stage.watch, ramps_end(job.stage, steps), replica.warmup_end(job.stage.optimizer, steps)
        )  # fmt: skip
        self._best = Best(job.stage.validation if isinstance(job.stage, FinetuneSettings) else None)
        self._reports = (job.reports or scratch) / REPORTS_FILE
        self._preemption = Preemption(group)
        self._unlisted = self._stopped = False
        if checkpoint is not None:
            self._unlisted = listed is None
            self._restore(checkpoint)

    def _find_rate(self) -> float:
        """Find the learning rate, and tell it."""
        rate, steps = find_rate(self._job.stage, self._make)
        if self._first:
            self._job.progress.tell.remote("found a learning rate", {"learning_rate": rate, "steps": steps})
        gc.collect()  # what is left of the trial, before there is another model
        return rate

    def _make(self, stage: LoopSettings) -> StageTrainer:
        """Make a trainer at step 0."""
        return make_trainer(stage, load_start(self._model, stage), self._work, self._job.inputs, self._group)

    def train(self) -> None:
        """Run all remaining steps, with reports, validations and checkpoints."""
        job, trainer, stage = self._job, self._trainer, self._job.stage
        validator = None
        if self._first:
            validator = make_validator(stage, trainer.encoder, self._work, job.inputs, self._scratch)
        work = ModelWork.of(trainer.encoder.model, len(trainer.encoder.head_layer()[0]))
        meter = ThroughputMeter(work, self._group.device, peak=_peak(self._group, bf16=trainer.bf16))
        with contextlib.ExitStack() as stack:
            reporter = None
            if self._first:
                reporter = Reporter(self._reports, stage.watch, run=job.run.name, resumed_at=trainer.step or None)
                stack.enter_context(reporter)
            if self._unlisted:
                self._save()
            if trainer.step == 0 and stage.validation is not None:  # a resumed run is past it
                with meter.paused():
                    validation = self._validate(validator)
                    if reporter is not None:
                        reporter.report(0, validation)
            while trainer.step < trainer.steps and not self._stopped:
                result = trainer.train_step()
                result.count(meter)
                last = trainer.step == trainer.steps
                due = stage.validation is not None and (last or trainer.step % stage.validation.every == 0)
                validation = {}
                if due:  # a pause waits for the device
                    check_numbers(trainer.step, {"loss": result.losses["total"], "grad_norm": result.grad_norm})
                    with meter.paused():
                        validation = self._validate(validator)
                if due or last or trainer.step % stage.watch.every == 0:
                    self._report(result, validation, meter, reporter)
                announced = self._preemption.is_new()
                if announced or last or self._stopped or trainer.step % stage.checkpoint_every == 0:
                    with meter.paused():
                        self._save()

    def _report(
        self, result: StepOutcome, validation: Mapping[str, float], meter: ThroughputMeter, reporter: Reporter | None
    ) -> None:
        step = self._trainer.step
        values: dict[str, float | None] = {
            "loss": result.losses["total"],
            **{f"loss_{name}": value for name, value in result.losses.items() if name != "total"},
            "grad_norm": result.grad_norm,
            "learning_rate": result.learning_rate,
            **result.figures(),
            **self._trainer.figures(),
        }
        speed = meter.report()
        if reporter is not None:
            reporter.report(step, {**values, **speed, **validation})
            self._job.progress.show.remote(step, self._trainer.steps, result.losses["total"])
        self._guard.check(step, values)

    def _validate(self, validator: Validate | None) -> dict[str, float]:
        """Validate the model on the first worker; a collective operation, as sharded weights are gathered."""
        weights = self._trainer.weights(keep=self._first)
        values: dict[str, float] = {}
        if validator is not None:
            found = validator(self._encoder(weights))
            self._best.offer(self._trainer.step, found.measures, weights)
            values = {f"validation/{name}": value for name, value in (found.measures | found.others).items()}
        # Only the first worker validates; the others learn here whether it was the last time.
        self._stopped = bool(largest_of_workers(torch.tensor(float(self._best.stopped))))
        return values

    def _encoder(self, weights: Mapping[str, torch.Tensor]) -> SparseEncoder:
        """Return the whole encoder with its query weights: the trained one, or a copy if that is sharded."""
        whole = self._trainer.encoder
        if self._trainer.sharded:
            whole = load_start(self._model, self._job.stage)
            encoder_setup.prepare_encoder(whole, self._job.stage)
            replica.load_weights(encoder_setup.trained_module(whole), weights)
            whole = whole.to(self._group.device)
        whole.query_weights = weights.get(replica.QUERY_WEIGHTS, whole.query_weights)
        return whole

    def _save(self) -> None:
        step, tensors = self._trainer.step, self._trainer.tensors(keep=self._first)
        metrics = {"step": step, "best_step": self._best.step, "best_value": self._best.value}
        if not self._first:
            ray.train.report(metrics)
            return
        if self._best.weights is not None:
            tensors["best"] = dict(self._best.weights)
        folder = self._scratch / f"checkpoint-{step}"
        drafts.write_file(folder / REPORTS_FILE, self._reports.read_bytes())
        state = {
            "guard": self._guard.state(),
            "best": self._best.state(),
            "full_rate": self._trainer.full_rate,
            "resources": self._resources(),
        }
        name = self._job.run.name
        write_checkpoint(folder, Checkpoint(step, tensors, state), name=name)
        with disk.writing(f"{self._work.uri}/runs/{name}"):
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(str(folder)))
        shutil.rmtree(folder)

    def _restore(self, checkpoint: ray.train.Checkpoint) -> None:
        with open_checkpoint(checkpoint) as folder:
            found = read_checkpoint(folder, name=self._job.run.name)
            if self._first and not self._job.reports:
                drafts.write_file(self._reports, (folder / REPORTS_FILE).read_bytes())
        self._trainer.load(found.step, found.tensors)
        if self._job.stage.optimizer.learning_rate == "auto":
            self._trainer.full_rate = found.state["full_rate"]
        self._guard.load_state(found.state["guard"])
        self._best.load_state(found.state["best"], found.tensors.get("best"))
        self._stopped = self._best.stopped
        log.info("resumed", extra={"fields": {"step": found.step, "rank": self._group.rank}})
        before = found.state["resources"]
        if self._first and before != self._resources():
            log.warning(
                "resumed with other workers, threads or precision: the last bits of the weights will differ from those "
                "of a run without interruption",
                extra={"fields": {"before": before, "now": self._resources()}},
            )

    def _resources(self) -> dict[str, int]:
        """Return what decides on the order of sums and on rounding, and with them the last bits of the weights."""
        return {"workers": self._group.world, "threads": self._job.threads, "bf16": self._trainer.bf16}


def _peak(group: Group, *, bf16: bool) -> float | None:
    if group.device.type == "cuda":
        return known_peak(torch.cuda.get_device_name(group.device), bf16=bf16)
    return measured_peak(bf16=bf16)


class Preemption:
    """Poll of Ray Train for preemptions; the answer of its actor is too slow for every step."""

    def __init__(
        self, group: Group, *, ask: Callable[[], Any] = ray.train.get_preemption_info, every_s: float = _EVERY_S
    ) -> None:
        self._group, self._ask, self._every = group, ask, every_s
        self._asked = time.monotonic()
        self._known: set[str] = set()

    def is_new(self) -> bool:
        """Return True if a preemption is new; a collective operation of all workers, with equal results."""
        if not self._is_due():
            return False
        self._asked = time.monotonic()
        announced = self._ask()
        machines = set() if announced is None else set(announced.preempted_node_to_ranks)
        new = not machines <= self._known
        self._known |= machines
        return new

    def _is_due(self) -> bool:
        """Return True on all workers as soon as a poll is due on one of them: their clocks differ."""
        due = time.monotonic() - self._asked >= self._every
        if self._group.world == 1:
            return due
        flag = torch.tensor(int(due), device=self._group.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)
