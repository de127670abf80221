"""The model on one worker: plain, as a replica (DDP), or as a shard (FSDP2).

On a CPU, outputs of activations and layer norms are recomputed in the backward pass instead of kept. A linear layer
keeps its input for the gradient of its weights. If that is the output of an activation or of a layer norm, the input of
which is kept anyway, then a cheap elementwise operation restores it: of a BERT layer, 6 of the 16 hidden vectors per
token that a step would keep otherwise. The recomputed values are equal to the bit.
"""

import ctypes
import platform
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from transformers.activations import GELUActivation, GELUTanh, SiLUActivation

from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import transformer_layers
from lsr_prod.model.pooled_head import PooledArgmax
from lsr_prod.training.process_group import Group

# Activations that keep their input for the backward pass. ReLU, for example, keeps its output, so this costs nothing.
_ACTIVATIONS = (nn.GELU, nn.SiLU, nn.Mish, GELUActivation, GELUTanh, SiLUActivation)


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
    """The encoder on this worker.

    Attributes:
        encoder: the module; under FSDP2 its parameters are shards.
        frozen: no parameter is trained.
    """

    def __init__(
        self,
        encoder: SparseEncoder,
        strategy: Literal["ddp", "fsdp"],
        group: Group,
        around: Callable[[SparseEncoder], nn.Module] | None = None,
    ) -> None:
        self.encoder = encoder.to(group.device)
        self._module: Any = (around or _Representations)(self.encoder)
        self._sharded = strategy == "fsdp" and group.world > 1
        # DDP refuses a module without trained parameters; a frozen encoder is equal on every worker anyway.
        self.frozen = not any(parameter.requires_grad for parameter in self.encoder.model.parameters())
        self._replicated = strategy == "ddp" and group.world > 1 and not self.frozen
        cpu = group.device.type == "cpu"  # a GPU waits for its memory: to read a tensor again costs as much
        self._recomputation = Recomputation(encoder.model, norms=not self._sharded) if cpu else None
        if self._sharded:
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
        with self._lean(), torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            weights: tuple[Tensor, ...] = self._module(*batches, found=found)
        return weights

    def run(self, *inputs: Tensor) -> Any:
        """Run the forward pass of the module around the encoder."""
        with self._lean():
            return self._module(*inputs)

    def find_argmax(self, ids: Tensor, mask: Tensor) -> PooledArgmax:
        """Return the weights of a batch, without graph, and the token of each weight."""
        found: PooledArgmax = self._module(ids, mask, search=True)
        return found

    def _lean(self) -> AbstractContextManager[None]:
        return nullcontext() if self._recomputation is None else self._recomputation.enabled()

    @property
    def sharded(self) -> bool:
        """True if each worker holds only a shard of the weights."""
        return self._sharded

    @contextmanager
    def synchronized(self, last: bool) -> Iterator[None]:
        """Context of a forward and backward pass; the ``last`` one of a step averages the gradients of all workers."""
        if self._replicated and not last:
            with self._module.no_sync():
                yield
            return
        if self._sharded:
            self._module.set_requires_gradient_sync(last)
        yield


def return_free_memory() -> None:
    """Give free pages back to the system; does nothing without glibc.

    A step allocates tensors that live for different times. glibc keeps the gaps between them, so that a step occupies
    more memory than it uses. The pages are filled with zeros again when they are needed, which takes about 10 % of a
    step's time.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


class Recomputation:
    """Recomputation of cheap outputs for one model.

    A tensor that the graph is about to keep is recognized by its memory: the output of the module is still referenced
    then, so no other tensor can have the same address. Layers under gradient checkpointing have hooks of their own,
    which take precedence.
    """

    def __init__(self, model: nn.Module, *, norms: bool = True) -> None:
        self._active = False
        self._outputs: dict[int, tuple[weakref.ref[Tensor], _Recipe]] = {}
        kinds = (*_ACTIVATIONS, nn.LayerNorm) if norms else _ACTIVATIONS
        for module in model.modules():
            if isinstance(module, kinds):
                module.register_forward_hook(self._observe)

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Context of a forward pass."""
        self._active = True
        try:
            with saved_tensors_hooks(self._pack, _unpack):
                yield
        finally:
            self._active = False
            self._outputs.clear()

    def _observe(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not (self._active and torch.is_grad_enabled() and isinstance(output, Tensor) and output.requires_grad):
            return
        if not output.is_contiguous() or torch.is_autocast_enabled(output.device.type):
            return
        place = output.data_ptr()

        def forget(reference: weakref.ref[Tensor]) -> None:
            if place in self._outputs and self._outputs[place][0] is reference:
                del self._outputs[place]

        recipe = _Recipe(module, inputs[0].detach(), output._version)
        self._outputs[place] = weakref.ref(output, forget), recipe

    def _pack(self, tensor: Tensor) -> "Tensor | _Saved":
        reference, recipe = self._outputs.get(tensor.data_ptr(), (None, None))
        output = None if reference is None else reference()
        if output is None or recipe is None or output._version != recipe.output_version:
            return tensor
        if tensor.numel() != output.numel() or tensor.dtype != output.dtype or not tensor.is_contiguous():
            return tensor
        return _Saved(recipe, tensor.shape)


class _Recipe:
    """Module and input of an output."""

    def __init__(self, module: nn.Module, values: Tensor, output_version: int) -> None:
        self.module, self.values, self.output_version = module, values, output_version
        self._version = values._version

    def run(self) -> Tensor:
        if self.values._version != self._version:
            raise RuntimeError(f"the input of a {type(self.module).__name__} was changed in place")
        with torch.no_grad():
            result: Tensor = self.module.forward(self.values)  # without hooks
        return result


class _Saved:
    """Recipe of a saved tensor, and its shape."""

    def __init__(self, recipe: _Recipe, shape: torch.Size) -> None:
        self.recipe, self.shape = recipe, shape


def _unpack(saved: "Tensor | _Saved") -> Tensor:
    return saved if isinstance(saved, Tensor) else saved.recipe.run().view(saved.shape)
