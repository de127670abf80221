"""Dry run of a training chain: rows, quarantine, steps, hours and memory of every stage; nothing is written."""

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lsr_prod.config import Deployment, StageSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.artifacts import fetch_artifact, has_artifact
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.training.chain_plan import ChainPlan, plan_chain
from lsr_prod.training.data.layouts import QueryTermLayout, TokenSettings
from lsr_prod.training.data.parts import ReadRow, token_problem, tokenize_rows
from lsr_prod.training.data.training_rows import cut_data, pin_files, read_rows
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.lineage import load_record
from lsr_prod.training.loop.rate import RATES
from lsr_prod.training.loop.worker_job import load_start
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stage_trainer import total_steps
from lsr_prod.training.stages.registry import stage_digest

TIMED_QUERIES = 32
"""Maximum number of queries of a timed step; the cost of a larger batch is scaled from it."""

_TIMED = 2  # steps after the first one, which allocates


@dataclass(frozen=True, slots=True)
class StepCost:
    """Cost of a step with the whole batch, on one worker."""

    seconds: float  # seconds per step
    memory_bytes: int  # peak memory of the process, scaled to the texts of a forward pass
    queries: int  # queries of the timed steps
    threads: int  # CPU threads of the timed steps; 0 on a GPU


def time_step(
    encoder: SparseEncoder, stage: FinetuneSettings, sample: SampleRows, *, threads: int, use_gpu: bool
) -> StepCost:
    """Train some steps, and scale their time and memory to the batch of the stage. The encoder is changed.

    Time is proportional to the queries. In memory are the texts of a part of the step; with ``chunk``, those of a chunk
    and the vectors of the batch.
    """
    batch = stage.batch
    timed = min(TIMED_QUERIES, batch.queries // batch.accumulate, sample.rows)
    small = batch.model_copy(update={"queries": timed, "accumulate": 1, "group_by_length": False})
    group = Group(0, 1, torch.device("cuda", 0) if use_gpu else torch.device("cpu"))
    before, threads_before = _peak(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        weights = torch.ones(encoder.card.vocabulary_size) if encoder.card.inference_free else None
        scale = stage.scale.model_copy(update={"strategy": "ddp"})
        short = stage.model_copy(update={"batch": small, "steps": _TIMED + 1, "epochs": None, "scale": scale})
        trainer = Trainer(encoder.to(group.device), sample, short, group, query_weights=weights)
        trainer.full_rate = 1e-6  # time does not depend on it, and auto names none
        trainer.train_step()
        started = time.perf_counter()
        for _ in range(_TIMED):
            trainer.train_step()  # reads the loss, and so waits for the device
        seconds = (time.perf_counter() - started) / _TIMED
    finally:
        torch.set_num_threads(threads_before)
    memory = _memory(stage, encoder, timed, before, torch.cuda.max_memory_allocated() if use_gpu else None)
    return StepCost(seconds * batch.queries / timed, memory, timed, 0 if use_gpu else threads)


def _memory(stage: FinetuneSettings, encoder: SparseEncoder, timed: int, before: int, of_gpu: int | None) -> int:
    """Return the peak of the timed steps, with the memory of texts scaled to those of a forward pass."""
    parameters = list(encoder.model.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    fixed = 12 * trained  # bytes of gradients and of the two moments of AdamW
    start = sum(4 * parameter.numel() for parameter in parameters) if of_gpu is not None else before
    peak = _peak() if of_gpu is None else of_gpu
    batch, texts_of_query = stage.batch, 2 + stage.batch.negatives
    texts = batch.queries // batch.accumulate * texts_of_query
    if batch.chunk is None:
        return int(start + fixed + max(0, peak - start - fixed) * texts / (timed * texts_of_query))
    vectors = 8 * (texts - timed * texts_of_query) * encoder.card.vocabulary_size  # float32 vectors and gradients
    return int(max(peak, start + fixed) + max(0, vectors))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_SLICE_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class ReadData:
    """Rows of a stage that were read and validated."""

    rows: int  # good rows
    quarantined: dict[str, int]  # bad rows by reason
    sample: tuple[ReadRow, ...]  # the first good rows

    def too_many_bad(self, data: TrainingDataSettings) -> bool:
        """Return whether the stage would fail, because the share of bad rows is above ``max_bad_fraction``."""
        bad = sum(self.quarantined.values())
        return bad > data.max_bad_fraction * (self.rows + bad)


def describe_chain(deployment: Deployment) -> dict[str, Any]:
    """Return what a run of the chain would do; all settings are checked as in a run.

    Rows are read and validated in this process, but not tokenized: only the run finds rows without a token. The time of
    a fine-tuning step is measured on this machine, with the model that the chain or the stage starts from; for other
    stages the time is unknown.
    """
    with scratch_folder() as scratch:
        plan = plan_chain(deployment, scratch)
        cores, use_gpu = _this_machine(deployment)
        rows = [_describe(plan, cores, use_gpu, *one) for one in _walk(plan)]
    hours = [row["hours"] for row in rows if row["done"] == "to do"]
    return {
        "output": plan.output,
        "stages": len(rows),
        "stages_finished": sum(row["done"] == "before" for row in rows),
        "hours": None if None in hours else sum(hours),
        "threads": cores,
        "use_gpu": use_gpu,
        "stage_rows": rows,
    }


def read_all(data: TrainingDataSettings, options: dict[str, str], *, needs_negative: bool) -> ReadData:
    """Read and validate all rows; nothing is written."""
    files, count, bad, sample = pin_files(data, options), 0, Counter[str](), list[ReadRow]()
    for piece in cut_data(files, data, _SLICE_BYTES, options):
        for position, row in read_rows(piece, data, options, needs_negative=needs_negative):
            if isinstance(row, BadRow):
                bad[row.counted_as] += 1
                continue
            count += 1
            if len(sample) < TIMED_QUERIES:
                sample.append(ReadRow(piece, position, row))
    return ReadData(count, dict(sorted(bad.items())), tuple(sample))


def _this_machine(deployment: Deployment) -> tuple[int, bool]:
    """Return cores and GPU of a worker on this machine, as a run on a local cluster would choose them."""
    train = deployment.train
    assert train is not None
    use_gpu = torch.cuda.is_available() if train.use_gpu is None else train.use_gpu and torch.cuda.is_available()
    every = deployment.ray.num_cpus or os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    every = min(every, int(threads)) if threads.isdecimal() else every
    return max(1, int(train.cpus_per_worker or every // (train.workers or 1))), use_gpu


def _walk(plan: ChainPlan) -> Iterator[tuple[int, StageSettings, str | None, bool]]:
    """Yield number, settings, digest of the start model if it is known, and whether the stage is finished."""
    model: str | None = plan.digest
    for number, (stage, pins) in enumerate(zip(plan.train.stages, plan.pins, strict=True)):
        record = None if model is None else load_record(plan.store, stage_digest(stage, pins, model))
        yield number, stage, model, record is not None
        model = None if record is None else record.model


def _describe(
    plan: ChainPlan, cores: int, use_gpu: bool, number: int, stage: StageSettings, start: str | None, finished: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "number": number,
        "kind": stage.stage,
        "done": "before" if finished else "to do",
        "rows": None,
        "quarantined": {},
        "steps": None,
        "hours": None,
        "memory_bytes": None,
        "note": "",
    }
    if finished:
        return row
    if not isinstance(stage, FinetuneSettings | LanguageSettings):
        return {**row, "hours": 0.0, "note": "no training loop"}
    settings: Sequence[TrainingDataSettings] = [stage.data] if isinstance(stage, LanguageSettings) else stage.data_sets
    needs_negative = isinstance(stage, FinetuneSettings) and stage.needs_negative
    sets = [read_all(one, plan.store.options, needs_negative=needs_negative) for one in settings]
    bad = sum((Counter(one.quarantined) for one in sets), Counter[str]())
    row |= {"rows": sum(one.rows for one in sets), "quarantined": dict(sorted(bad.items()))}
    if any(one.too_many_bad(data) or not one.rows for one, data in zip(sets, settings, strict=True)):
        return {**row, "note": "fails: too many bad rows for data.max_bad_fraction, or no good row"}
    if isinstance(stage, LanguageSettings):
        packed = stage.stage == "adapt_causal" and stage.steps is None
        steps = None if packed else total_steps(stage, row["rows"])
        return {**row, "steps": steps, "note": "time unknown: only fine-tuning is timed"}
    row["steps"] = total_steps(stage, *(one.rows for one in sets))
    if min(one.rows for one in sets) < stage.batch.queries:
        return {**row, "note": f"fails: batch.queries is {stage.batch.queries}, more than the rows"}
    # Steps of the first data set stand for those of all.
    cost, model = _time(plan, stage.model_copy(update={"data": stage.data_sets[0]}), start, sets[0], cores, use_gpu)
    trial = len(RATES) if stage.optimizer.learning_rate == "auto" else 0
    workers = plan.train.workers or 1
    place = "GPU" if use_gpu else f"{cost.threads} thread{'s' if cost.threads > 1 else ''}"
    note = f"measured with {cost.queries} queries per step on this machine ({place}), {model}"
    return {
        **row,
        "hours": (row["steps"] + trial) * cost.seconds / workers / 3600,
        "memory_bytes": cost.memory_bytes,
        "note": f"{note}; divided by {workers} workers" if workers > 1 else note,
    }


def _time(
    plan: ChainPlan, stage: FinetuneSettings, start: str | None, data: ReadData, cores: int, use_gpu: bool
) -> tuple[StepCost, str]:
    """Return the cost of a step, and a description of the model that it was measured with."""
    folder, description = plan.start, "model: that of the start of the chain"
    if start is not None:
        description = "model: that of the stage"
        if start != plan.digest and has_artifact(plan.store, f"models/{start}"):
            folder = fetch_artifact(plan.store, f"models/{start}")
    encoder = load_start(folder, stage)
    layout = QueryTermLayout(encoder.card, tuple(encoder.vocabulary)) if encoder.card.inference_free else None
    with scratch_folder() as scratch:
        encoder.save(scratch / "model")  # of a Hugging Face folder, the tokenizer as encoders use it
        tokens = TokenSettings.of_model(
            scratch / "model",
            query_max_length=encoder.card.query_max_length,
            document_max_length=encoder.card.document_max_length,
            plain=False,
        )
    rows = tokenize_rows(data.sample, tokens, layout)
    good = (row for (_, _, source), row in rows if token_problem(source, row, layout) is None)
    sample = SampleRows([Example(row.query, tuple(row.documents), _scores(row.scores)) for row in good])
    return time_step(encoder, stage, sample, threads=cores, use_gpu=use_gpu), description


def _scores(scores: tuple[float, ...] | None) -> npt.NDArray[np.float32] | None:
    return None if scores is None else np.array(scores, np.float32)
