"""A short real training in one process, for tests of what runs around a training: steps of SGD on random words."""

import json
import multiprocessing
import os
from collections.abc import Mapping
from contextlib import nullcontext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from lsr_prod.config import Deployment, FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training import chain
from lsr_prod.training.loop.worker_job import StageRun

_PROCESSES = multiprocessing.get_context("forkserver")  # with all imports done: they take longer than a short chain


def train_a_little(stage: FinetuneSettings, job: StageRun) -> Mapping[str, Any]:
    """Train ``stage.steps`` steps; each run of a stage leaves a line in ``runs`` of the work folder.

    Ends its own process before step LSR_KILL_STEP of the stage whose seed is LSR_KILL_SEED.
    """
    store = job.work
    encoder = SparseEncoder.load(fetch_artifact(store, f"models/{job.start}"))
    for run in range(100):
        if store.put_new(f"runs/{job.name}-{run}", str(stage.seed).encode()):
            break
    generator = torch.Generator().manual_seed(stage.seed)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=stage.optimizer.learning_rate)
    steps, threads = stage.steps or 0, torch.get_num_threads()
    torch.set_num_threads(1)  # sums on one thread and on two differ in their last bit
    for step in range(steps):
        if os.environ.get("LSR_KILL_SEED") == str(stage.seed) and os.environ.get("LSR_KILL_STEP") == str(step):
            os.kill(os.getpid(), 9)
        words = torch.randint(5, encoder.card.vocabulary_size, (4, 8), generator=generator)
        optimizer.zero_grad()
        encoder(words, torch.ones_like(words)).square().mean().backward()
        optimizer.step()
    torch.set_num_threads(threads)
    encoder.save(job.output)
    return {"steps": steps, "rows": 4, "training_set": "0" * 64, "loss": 0.5}


def start_chain(
    settings: Mapping[str, Any], answer: Path, *, kill_step: tuple[int, int] | None = None, kill_write: Any = None
) -> BaseProcess:
    """Run a chain in a process of its own, which ends by SIGKILL where that is asked for.

    Args:
        settings: of the deployment.
        answer: file for the summary.
        kill_step: seed of a stage and the step before which it dies.
        kill_write: (class, method, number of the call before which it dies).
    """
    process = _PROCESSES.Process(target=_run_chain, args=(settings, answer, kill_step, kill_write))
    process.start()
    return process


def _run_chain(settings: Any, answer: Path, kill_step: tuple[int, int] | None, kill_write: Any) -> None:
    if kill_step is not None:
        os.environ["LSR_KILL_SEED"], os.environ["LSR_KILL_STEP"] = map(str, kill_step)
    chain.ray_for = lambda train, _: nullcontext(train)
    chain.run_stage = train_a_little
    if kill_write is not None:
        _die_before(*kill_write)
    answer.write_text(json.dumps(chain.run_chain(Deployment.model_validate(settings))))


def _die_before(owner: type, verb: str, last: int) -> None:
    real, calls = getattr(owner, verb), []

    def killing(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.extend([1] * (not str(arguments[0]).startswith("runs/")))  # those are the stand-in's own
        if len(calls) == last:
            os.kill(os.getpid(), 9)
        return real(self, *arguments, **named)

    setattr(owner, verb, killing)
