"""One measurement of ``benchmarks.train.train_step`` in a process of its own; prints a line of JSON.

Every engine minimises the same loss of the same texts with the same AdamW: the cross entropy of each query's document
among all of the batch, plus FLOPS on both sides. Gradients are freed after a step, as the peer's trainer does.

Memory is what the kernel counts: the high-water mark of the resident set during whole steps (VmHWM, reset before
them), less the resident set of the loaded model. Before that level is read a tiny backward pass makes every library
load what it loads once, and malloc gives its free pages back. Gradients, the optimiser's state and whatever the
allocator holds on to all count. Linux only.
"""

import ctypes
import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lsr_prod.config.language import ScaleSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup import checkpoint_layers, uses_bf16
from lsr_prod.training.process_group import Group
from lsr_prod.training.replica import Replica
from lsr_prod_contrib.cpu_training import return_free_memory, use_cpu_kernels

QUERY_FLOPS, DOCUMENT_FLOPS = 5e-5, 3e-5  # as in the peer's documentation
LEARNING_RATE = 2e-5

Step = Callable[[], float]
Batch = tuple[Tensor, Tensor]  # ids and mask, int64 [n, L]


def main(path: str) -> int:
    """Measure what the file at ``path`` asks for."""
    spec: dict[str, Any] = json.loads(Path(path).read_text())
    torch.manual_seed(spec["seed"])
    batches = draw(spec), draw({**spec, "seed": spec["seed"] + 1})
    try:
        measured = measure(spec, batches)
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        measured = {"out_of_memory": True}
    print(json.dumps(measured), flush=True)
    return 0


def draw(spec: Mapping[str, Any]) -> Batch:
    """Texts of random words, all of the full length."""
    generator = torch.Generator().manual_seed(spec["seed"])
    ids = torch.randint(5, spec["V"], (spec["pairs"], spec["L"]), generator=generator)
    return ids, torch.ones_like(ids)


def measure(spec: Mapping[str, Any], batches: tuple[Batch, Batch]) -> dict[str, Any]:
    """Seconds of every timed step, the peak in bytes, and the loss of the first step."""
    model, make = ENGINES[spec["engine"]](spec)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and spec.get("dropout") is not None:
            module.p = spec["dropout"]
    warm_up(make, batches, model)
    loaded = resident("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (spec["memory_bytes"] + writable(), resource.RLIM_INFINITY))
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    loss_of_batch = make(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    seconds, cpu_seconds, losses = [], [], []
    for _ in range(1 + spec["steps"]):  # the first one makes the optimiser's state
        begin, cpu_begin = time.perf_counter(), time.process_time()
        losses.append(loss_of_batch())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if spec["engine"] == "ours" and spec.get("kept_layers"):  # as the trainer does
            return_free_memory()
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return {
        "seconds": seconds[1:],
        "cpu_seconds": cpu_seconds[1:],
        "peak_bytes": resident("VmHWM") - loaded,
        "loss": losses[0],
    }


def warm_up(make: Callable[[tuple[Batch, Batch]], Step], batches: tuple[Batch, Batch], model: torch.nn.Module) -> None:
    """Forward and backward of two short texts, and everything that they took given back."""
    queries, documents = ((ids[:2, :8], mask[:2, :8]) for ids, mask in batches)
    make((queries, documents))()
    model.zero_grad(set_to_none=True)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (the most since it was reset), bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def writable() -> int:
    """Writable memory that is mapped already, bytes: what RLIMIT_DATA counts."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def in_bf16(enabled: bool) -> torch.autocast:
    """Products in bf16; all else as it is."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


# --- ours ---


def ours(spec: Mapping[str, Any]) -> tuple[torch.nn.Module, Callable[[tuple[Batch, Batch]], Step]]:
    """One pass with a graph behind all texts, or, with ``chunk``, two passes over so many texts at a time."""
    encoder = SparseEncoder.load(spec["model"])
    use_cpu_kernels(encoder.model)
    if spec.get("kept_layers"):
        checkpoint_layers(encoder.model, kept=spec["kept_layers"])
    cpu = torch.device("cpu")
    replica = Replica(encoder, "ddp", Group(0, 1, cpu))
    products = partial(in_bf16, uses_bf16(encoder, ScaleSettings(precision=spec["precision"]), cpu))

    def one_pass(batches: tuple[Batch, Batch]) -> float:
        with products():
            vectors = replica(*batches[0], *batches[1])
        loss = loss_of(*vectors)
        if spec.get("kept_layers"):
            return_free_memory()
        loss.backward()
        return loss.item()

    def two_passes(batches: tuple[Batch, Batch]) -> float:
        size = spec["chunk"]
        chunks = [
            (side, slice(start, start + size)) for side in (0, 1) for start in range(0, len(batches[side][0]), size)
        ]
        states, maxima = [], []
        for side, rows in chunks:
            states.append(torch.get_rng_state())  # dropout of the second pass has to be that of the first
            with products():
                maxima.append(encoder.find_argmax(*(part[rows] for part in batches[side])))
        vectors = [
            torch.cat([one.weights for (at, _), one in zip(chunks, maxima, strict=True) if at == side]).requires_grad_()
            for side in (0, 1)
        ]
        loss = loss_of(*vectors)
        loss.backward()
        after = torch.get_rng_state()
        for side, rows in reversed(chunks):
            torch.set_rng_state(states.pop())
            with products():
                (weights,) = replica(*(part[rows] for part in batches[side]), found=maxima.pop())
            weights.backward(vectors[side].grad[rows])
        torch.set_rng_state(after)
        return loss.item()

    step = two_passes if spec["chunk"] else one_pass
    return encoder, lambda batches: lambda: step(batches)


def loss_of(queries: Tensor, documents: Tensor) -> Tensor:
    """In-batch cross entropy and FLOPS of both sides, from [n, V] each."""
    labels = torch.arange(len(queries), device=queries.device)
    loss = torch.nn.functional.cross_entropy(queries @ documents.t(), labels)
    flops = [vectors.mean(dim=0).square().sum() for vectors in (queries, documents)]
    return loss + QUERY_FLOPS * flops[0] + DOCUMENT_FLOPS * flops[1]


# --- sentence-transformers ---


def peer(spec: Mapping[str, Any]) -> tuple[torch.nn.Module, Callable[[tuple[Batch, Batch]], Step]]:
    """``SpladeLoss``, or with ``chunk`` ``CachedSpladeLoss`` in mini-batches of so many texts."""
    from sentence_transformers.sparse_encoder import SparseEncoder as Peer
    from sentence_transformers.sparse_encoder import losses

    model = Peer(spec["model"], device="cpu")
    if spec.get("checkpointed"):
        model.transformers_model.gradient_checkpointing_enable()
    options: dict[str, Any] = {
        "loss": losses.SparseMultipleNegativesRankingLoss(model),
        "query_regularizer_weight": QUERY_FLOPS,
        "document_regularizer_weight": DOCUMENT_FLOPS,
    }
    if spec["chunk"]:
        loss_function = losses.CachedSpladeLoss(model, mini_batch_size=spec["chunk"], **options)
    else:
        loss_function = losses.SpladeLoss(model, **options)

    def make(batches: tuple[Batch, Batch]) -> Step:
        def step() -> float:
            # Made anew, as by a collator: the modules write their outputs into the features.
            features = [{"input_ids": ids, "attention_mask": mask} for ids, mask in batches]
            with in_bf16(bool(spec.get("bf16"))):
                loss = sum(loss_function(features, None).values())
            loss.backward()
            return float(loss.item())

        return step

    return model, make


ENGINES = {"ours": ours, "peer": peer}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
