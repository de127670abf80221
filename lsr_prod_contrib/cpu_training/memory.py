"""Less memory for training on a CPU: cheap outputs are recomputed, and free pages are returned to the system.

A linear layer keeps its input for the gradient of its weights. If that is the output of an activation or of a layer
norm, the input of which is kept anyway, then a cheap elementwise operation restores it: of a BERT layer, 6 of the 16
hidden vectors per token that a step would keep otherwise. The recomputed values are equal to the bit.
"""

import ctypes
import platform
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from transformers.activations import GELUActivation, GELUTanh, SiLUActivation

# Activations that keep their input for the backward pass. ReLU, for example, keeps its output, so this costs nothing.
_ACTIVATIONS = (nn.GELU, nn.SiLU, nn.Mish, GELUActivation, GELUTanh, SiLUActivation)


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
            elif isinstance(module, nn.Linear):
                module.register_forward_pre_hook(self._cast)

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
        if output.is_contiguous():
            self._remember(output, _Recipe(module, inputs[0].detach(), output.dtype, output._version))

    def _cast(self, _module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Cast an input as autocast would, but so that the cast is known when the graph is about to keep it."""
        if not (inputs and self._active and torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")):
            return None
        kind, recipe = torch.get_autocast_dtype("cpu"), self._recipe(inputs[0])
        if recipe is None or recipe.kind == kind:
            return None
        cast = inputs[0].to(kind)
        self._remember(cast, _Recipe(recipe.module, recipe.values, kind, cast._version))
        return (cast, *inputs[1:])

    def _remember(self, output: Tensor, recipe: "_Recipe") -> None:
        place = output.data_ptr()

        def forget(reference: weakref.ref[Tensor]) -> None:
            if place in self._outputs and self._outputs[place][0] is reference:
                del self._outputs[place]

        self._outputs[place] = weakref.ref(output, forget), recipe

    def _recipe(self, tensor: Tensor) -> "_Recipe | None":
        """Return the recipe of a tensor that has the numbers of an output, and is unchanged."""
        reference, recipe = self._outputs.get(tensor.data_ptr(), (None, None))
        output = None if reference is None else reference()
        if output is None or recipe is None or output._version != recipe.output_version:
            return None
        if tensor.numel() != output.numel() or tensor.dtype != output.dtype or not tensor.is_contiguous():
            return None
        return recipe

    def _pack(self, tensor: Tensor) -> "Tensor | _Saved":
        recipe = self._recipe(tensor)
        return tensor if recipe is None else _Saved(recipe, tensor.shape)


class _Recipe:
    """Module and input of an output, and the type to which it was cast."""

    def __init__(self, module: nn.Module, values: Tensor, kind: torch.dtype, output_version: int) -> None:
        self.module, self.values, self.kind, self.output_version = module, values, kind, output_version
        self._version = values._version

    def run(self) -> Tensor:
        if self.values._version != self._version:
            raise RuntimeError(f"the input of a {type(self.module).__name__} was changed in place")
        with torch.no_grad():
            result: Tensor = self.module.forward(self.values)  # without hooks
        return result.to(self.kind)


class _Saved:
    """Recipe of a saved tensor, and its shape."""

    def __init__(self, recipe: _Recipe, shape: torch.Size) -> None:
        self.recipe, self.shape = recipe, shape


def _unpack(saved: "Tensor | _Saved") -> Tensor:
    return saved if isinstance(saved, Tensor) else saved.recipe.run().view(saved.shape)
