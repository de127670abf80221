"""The model on one worker: plain, as a replica (DDP), or as a shard (FSDP2)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from lsr_prod.extras import contrib
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import transformer_layers
from lsr_prod.model.pooled_head import PooledArgmax
from lsr_prod.training.process_group import Group


class _Representations(nn.Module):
    """Encoder of several batches in one forward pass, so that DDP synchronizes once."""

    def __init__(self, encoder: SparseEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, *batches: Tensor, found: PooledArgmax | None = None, search: bool = False
    ) -> tuple[Tensor, ...] | PooledArgmax:
        """Encode batches, given as token ids and attention masks in turn: int64 [B, L] -> [B, V] each."""
        if search:
            return self.encoder.find_argmax(*batches)
        pairs = zip(batches[::2], batches[1::2], strict=True)
        return tuple(self.encoder(ids, mask, found=found) for ids, mask in pairs)


def _mean_in_order(world: int, bucket: GradBucket) -> Future[Tensor]:
    """Return the mean of a bucket over workers, added up in rank order.

    Gloo adds elements in an order that depends on their place in the bucket, and DDP changes its buckets after the
    first step of a process: sums of three summands would differ in their last bit after a restart.
    """
    own = bucket.buffer()
    parts = [torch.empty_like(own) for _ in range(world)]
    gathered = distributed.all_gather(parts, own, async_op=True)
    assert gathered is not None

    def mean(_: Future[Any]) -> Tensor:
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total / world

    done: Future[Tensor] = gathered.get_future().then(mean)
    return done


class Replica:
    """The encoder on this worker; if it is ``sharded``, each worker holds only a shard of the weights (FSDP2)."""

    def __init__(
        self,
        encoder: SparseEncoder,
        strategy: Literal["ddp", "fsdp"],
        group: Group,
        around: Callable[[SparseEncoder], nn.Module] | None = None,
    ) -> None:
        self.encoder = encoder.to(group.device)
        self._module: Any = (around or _Representations)(self.encoder)
        self.sharded = strategy == "fsdp" and group.world > 1
        # DDP refuses a module without trained parameters; a frozen encoder is equal on every worker anyway.
        self.frozen = not any(parameter.requires_grad for parameter in self.encoder.model.parameters())
        self._replicated = strategy == "ddp" and group.world > 1 and not self.frozen
        cpu = group.device.type == "cpu"  # a GPU waits for its memory: to read a tensor again costs as much
        self._recomputation = (
            contrib("cpu_training").Recomputation(encoder.model, norms=not self.sharded) if cpu else None
        )
        if self.sharded:
            mesh = init_device_mesh(group.device.type, (group.world,))
            for layer in transformer_layers(encoder.model):
                fully_shard(layer, mesh=mesh)
            fully_shard(self._module, mesh=mesh)
        if self._replicated:
            self._module = DistributedDataParallel(self._module, broadcast_buffers=False)
            if group.device.type == "cpu" and group.world > 2:
                self._module.register_comm_hook(group.world, _mean_in_order)

    def __call__(self, *batches: Tensor, found: PooledArgmax | None = None) -> tuple[Tensor, ...]:
        """Encode batches, given as token ids and attention masks in turn, to weights [B, V] of each batch."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            weights: tuple[Tensor, ...] = self.run(*batches, found=found)
        return weights

    def run(self, *inputs: Tensor, **options: Any) -> Any:
        """Run the forward pass of the module around the encoder."""
        with nullcontext() if self._recomputation is None else self._recomputation.enabled():
            return self._module(*inputs, **options)

    def find_argmax(self, ids: Tensor, mask: Tensor) -> PooledArgmax:
        """Return the weights of a batch, without graph, and the token of each weight."""
        found: PooledArgmax = self._module(ids, mask, search=True)
        return found

    @contextmanager
    def synchronized(self, last: bool) -> Iterator[None]:
        """Context of a forward and backward pass; the ``last`` one of a step averages the gradients of all workers."""
        if self._replicated and not last:
            with self._module.no_sync():
                yield
            return
        if self.sharded:
            self._module.set_requires_gradient_sync(last)
        yield
