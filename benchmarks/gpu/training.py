"""A training step on a GPU against sentence-transformers', the head against its product, FSDP2, a compiled model."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from benchmarks.train.train_step_worker import loss_of
from lsr_prod import SparseEncoder
from lsr_prod.model.backbone import transformer_layers
from lsr_prod.model.pooled_head import pool_vocabulary
from lsr_prod.training.encoder_setup import checkpoint_layers
from lsr_prod.training.process_group import Group, leave_process_group
from lsr_prod.training.replica import Replica

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
_RATE = 2e-5


def device() -> torch.device:
    """The GPU, or the CPU where there is none."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def draw(vocabulary: int, pairs: int, length: int) -> Batch:
    """Ids and masks of queries and documents, all of the full length."""
    generator = torch.Generator().manual_seed(1)
    sides = [torch.randint(999, vocabulary, (pairs, length), generator=generator).to(device()) for _ in range(2)]
    return sides[0], torch.ones_like(sides[0]), sides[1], torch.ones_like(sides[1])


def _synchronize() -> None:
    if device().type == "cuda":
        torch.cuda.synchronize()


def _timed(step: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call; the first is not timed."""
    step()
    seconds = []
    for _ in range(repeats):
        _synchronize()
        began = time.perf_counter()
        step()
        _synchronize()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def _measured(
    model: nn.Module, forward: Callable[[], Tensor], kind: torch.dtype | None, repeats: int
) -> dict[str, float]:
    """Milliseconds of a step with AdamW, and the peak of its memory above the model, MB."""
    on_gpu = device().type == "cuda"
    scaler = torch.amp.GradScaler(device().type, enabled=on_gpu and kind == torch.float16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, fused=True)

    def step() -> None:
        with torch.autocast(device().type, dtype=kind) if kind else nullcontext():
            loss = forward()
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    loaded = 0
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        loaded = torch.cuda.memory_allocated()
    seconds = _timed(step, repeats)
    peak = torch.cuda.max_memory_allocated() - loaded if on_gpu else 0
    return {"ms": round(1000 * seconds, 2), "peak_mb": round(peak / 1e6)}


def steps(model: Path, pairs: int, length: int, repeats: int) -> list[dict[str, Any]]:
    """Every engine in this process, one after the other."""
    rows = []
    for name, kept, kind in (
        ("ours bf16", None, torch.bfloat16),
        ("ours bf16, checkpointed", 2, torch.bfloat16),
        ("SpladeLoss fp16", None, torch.float16),
        ("SpladeLoss bf16", None, torch.bfloat16),
        ("SpladeLoss fp16, checkpointed", 2, torch.float16),
        ("SpladeLoss bf16, checkpointed", 2, torch.bfloat16),
    ):
        make = _ours if name.startswith("ours") else _peer
        trained, forward = make(model, kept, pairs, length)
        try:
            rows.append(
                {"engine": name, "pairs": pairs, "length": length, **_measured(trained, forward, kind, repeats)}
            )
        except torch.OutOfMemoryError:
            rows.append({"engine": name, "pairs": pairs, "length": length, "ms": None, "peak_mb": None})
        del trained, forward
    return rows


def _ours(model: Path, kept: int | None, pairs: int, length: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    encoder = SparseEncoder.load(model).train()
    if kept:
        checkpoint_layers(encoder.model, kept=kept)
    replica = Replica(encoder, "ddp", Group(0, 1, device()))
    batch = draw(encoder.card.vocabulary_size, pairs, length)
    return encoder, lambda: _loss(*replica(*batch))


def _loss(queries: Tensor, documents: Tensor) -> Tensor:
    with torch.autocast(queries.device.type, enabled=False):
        return loss_of(queries.float(), documents.float())


def _peer(model: Path, kept: int | None, pairs: int, length: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    from sentence_transformers.sparse_encoder import SparseEncoder as Peer
    from sentence_transformers.sparse_encoder import losses

    from benchmarks.train.train_step_worker import DOCUMENT_FLOPS, QUERY_FLOPS

    peer = Peer(str(model), device=str(device())).train()
    if kept:
        peer.transformers_model.gradient_checkpointing_enable()
    loss_function = losses.SpladeLoss(
        model=peer,
        loss=losses.SparseMultipleNegativesRankingLoss(peer),
        query_regularizer_weight=QUERY_FLOPS,
        document_regularizer_weight=DOCUMENT_FLOPS,
    )
    ids, mask, other_ids, other_mask = draw(len(peer.tokenizer), pairs, length)

    def forward() -> Tensor:
        features = [{"input_ids": one, "attention_mask": two} for one, two in ((ids, mask), (other_ids, other_mask))]
        total: Tensor = sum(loss_function(features, None).values(), torch.zeros((), device=device()))
        return total

    return peer, forward


def head(model: Path, texts: int, length: int, repeats: int) -> dict[str, float]:
    """Milliseconds of the pooled head and of its bare matrix product, forward, in 16 bits."""
    encoder = SparseEncoder.load(model).to(device())
    output = encoder.model.get_output_embeddings()
    kind = torch.bfloat16
    hidden = torch.randn(texts, length, output.weight.shape[1], device=device(), dtype=kind)
    weight, bias = output.weight.detach().to(kind), output.bias.detach()
    pooled = torch.ones(texts, length, dtype=torch.bool, device=device())
    with torch.no_grad():
        ours = _timed(lambda: pool_vocabulary(hidden, weight, bias, pooled, activation="log1p_relu"), repeats)
        bare = _timed(lambda: hidden.flatten(0, 1) @ weight.t(), repeats)
    return {
        "head_ms": round(1000 * ours, 3),
        "head_product_ms": round(1000 * bare, 3),
        "head_ratio": round(ours / bare, 2),
    }


def once_each(model: Path, pairs: int, length: int) -> dict[str, Any]:
    """One step of a compiled model, and one of FSDP2 in a group of one worker: how far the gradients differ."""
    encoder = SparseEncoder.load(model).to(device())  # in evaluation mode: dropout would differ
    batch = draw(encoder.card.vocabulary_size, pairs, length)
    expected = _gradients(encoder, batch)
    encoder.model.base_model.compile()
    found = {"compile_difference": _largest(expected, _gradients(encoder, batch))}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
        backend = "nccl" if device().type == "cuda" else "gloo"
        distributed.init_process_group(backend, init_method=f"file://{folder}/meet", rank=0, world_size=1)
        try:
            sharded = SparseEncoder.load(model).to(device())
            mesh = init_device_mesh(device().type, (1,))
            for part in (*transformer_layers(sharded.model), sharded):
                fully_shard(part, mesh=mesh)
            found["fsdp_difference"] = _largest(expected, _gradients(sharded, batch))
        finally:
            leave_process_group()
    return found


def _gradients(encoder: SparseEncoder, batch: Batch) -> dict[str, Tensor]:
    encoder.zero_grad()
    _loss(encoder(*batch[:2]), encoder(*batch[2:])).backward()
    found = {}
    for name, parameter in encoder.named_parameters():
        gradient = parameter.grad
        if gradient is not None:
            found[name] = (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone()
    return found


def _largest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Largest difference of a gradient, relative to the largest gradient of its weights.

    That of all weights counts a thousandth: the gradient of the bias of keys is 0 but for rounding.
    """
    assert one.keys() == other.keys()
    least = 1e-3 * max(float(gradient.abs().max()) for gradient in one.values())
    gaps = [float((one[name] - other[name]).abs().max()) / max(float(one[name].abs().max()), least) for name in one]
    return round(max(gaps), 6)
