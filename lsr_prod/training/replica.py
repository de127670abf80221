"""The model on one worker, plain, as a replica (DDP), or as a shard (FSDP2), and the optimizer of its weights."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from lsr_prod.config.language import OptimizerSettings
from lsr_prod.extras import contrib
from lsr_prod.model import SparseEncoder, backbone, pooled_head
from lsr_prod.training.process_group import Group

QUERY_WEIGHTS = "query_weights"
"""Name of the learned query weights, float32 [V], among the trained weights of a checkpoint."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


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
            for layer in backbone.transformer_layers(encoder.model):
                fully_shard(layer, mesh=mesh)
            fully_shard(self._module, mesh=mesh)
        if self._replicated:
            self._module = DistributedDataParallel(self._module, broadcast_buffers=False)
            if group.device.type == "cpu" and group.world > 2:
                self._module.register_comm_hook(group.world, _mean_in_order)

    def __call__(self, *batches: Tensor, found: pooled_head.PooledArgmax | None = None) -> tuple[Tensor, ...]:
        """Encode batches, given as token ids and attention masks in turn, to weights [B, V] of each batch."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            weights: tuple[Tensor, ...] = self.run(*batches, found=found)
        return weights

    def run(self, *inputs: Tensor, **options: Any) -> Any:
        """Run the forward pass of the module around the encoder."""
        with nullcontext() if self._recomputation is None else self._recomputation.enabled():
            return self._module(*inputs, **options)

    def find_argmax(self, ids: Tensor, mask: Tensor) -> pooled_head.PooledArgmax:
        """Return the weights of a batch, without graph, and the token of each weight."""
        found: pooled_head.PooledArgmax = self._module(ids, mask, search=True)
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


class OptimizerStep:
    """AdamW over the trained parameters of a model, whole or sharded."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        self._model, self._settings = model, settings
        self._optimizer = make_optimizer(model, settings)
        self.full_rate = settings.learning_rate  # of the steps after the warm-up; auto: it has to be set before a step

    def begin(self, step: int, steps: int) -> float:
        """Set the learning rate of a step, and return it."""
        assert self.full_rate != "auto"
        rate = self.full_rate * rate_share(self._settings, step, steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        return rate

    def apply(self) -> Tensor:
        """Clip the gradients, update the weights and drop the gradients; return the norm before clipping, a scalar."""
        limit = self._settings.max_grad_norm
        norm = nn.utils.clip_grad_norm_(trained_parameters(self._model).values(), math.inf if limit is None else limit)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm.detach()

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """Return the trained parameters, whole and on the CPU; a collective operation of all workers."""
        # Gathered one at a time, so that the other workers hold only one whole parameter.
        gathered = ((name, full_tensor(p)) for name, p in trained_parameters(self._model).items())
        return {name: value.clone() for name, value in gathered if keep}

    def state(self) -> Iterable[tuple[str, Tensor]]:
        """Yield the optimizer state for a checkpoint; a collective operation of all workers."""
        return optimizer_tensors(self._model, self._optimizer)

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Restore a checkpoint."""
        load_weights(self._model, weights)
        load_optimizer(self._model, self._optimizer, state)


def rate_share(settings: OptimizerSettings, step: int, steps: int) -> float:
    """Return the learning rate of a step as a share of the full rate.

    It rises linearly to 1 at the last step of the warm-up, then falls to 0 at ``schedule_steps``, counted from step 0
    (``steps`` if unset), and stays there.
    """
    rising = warmup_end(settings, steps)
    if step < rising:
        return (step + 1) / rising
    if settings.schedule == "constant":
        return 1.0
    progress = min(1.0, (step - rising) / max(1, (settings.schedule_steps or steps) - rising))
    if settings.schedule == "linear":
        return 1 - progress
    return 0.5 * (1 + math.cos(math.pi * progress))


def warmup_end(settings: OptimizerSettings, steps: int) -> int:
    """Return the number of steps over which the learning rate rises."""
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    return round(settings.warmup_share * steps)


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """Create AdamW over the trained parameters; weight decay applies to matrices, not to biases and norms."""
    parameters = trained_parameters(model).values()
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=settings.betas, eps=settings.epsilon, fused=True
    )


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name; a tied parameter occurs once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def full_tensor(tensor: Tensor) -> Tensor:
    """Return a whole tensor on the CPU; for a sharded tensor, a collective operation of all workers."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Yield moments and step counts as ``<parameter>/<name>``, whole and on the CPU; nothing before the first step."""
    for name, parameter in trained_parameters(model).items():
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            yield f"{name}/{key}", full_tensor(value)


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy trained parameters into a model, whole or sharded."""
    for name, parameter in trained_parameters(model).items():
        parameter.copy_(_as(weights[name], parameter))


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the tensors of ``optimizer_tensors``."""
    if not tensors:
        return
    for name, parameter in trained_parameters(model).items():
        state = {key: _as(tensors[f"{name}/{key}"], parameter) for key in _MOMENTS}
        optimizer.state[parameter] = {"step": tensors[f"{name}/step"].clone().to(parameter.device), **state}


class _Representations(nn.Module):
    """Encoder of several batches in one forward pass, so that DDP synchronizes once."""

    def __init__(self, encoder: SparseEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, *batches: Tensor, found: pooled_head.PooledArgmax | None = None, search: bool = False
    ) -> tuple[Tensor, ...] | pooled_head.PooledArgmax:
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


def _as(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return a copy of a whole tensor, divided among the workers like a parameter."""
    if isinstance(parameter, DTensor):
        return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)
    return tensor.clone().to(parameter.device)
