"""Cost of a fine-tuning step on this machine, from timed steps of the real trainer on some of the rows."""

import resource
import time
from dataclasses import dataclass

import torch

from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training_data.sample_rows import SampleRows

TIMED_QUERIES = 32
"""Maximum number of queries of a timed step; the cost of a larger batch is scaled from it."""

_TIMED = 2  # steps after the first one, which allocates


@dataclass(frozen=True, slots=True)
class StepCost:
    """Cost of a step with the whole batch, on one worker.

    Attributes:
        seconds: seconds per step.
        memory_bytes: peak memory of the process, scaled to the texts of a forward pass.
        queries: queries of the timed steps.
        threads: CPU threads of the timed steps; 0 on a GPU.
    """

    seconds: float
    memory_bytes: int
    queries: int
    threads: int


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
