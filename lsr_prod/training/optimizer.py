"""Optimizer step: AdamW over whole or sharded parameters, and its state as named tensors."""

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lsr_prod.config.language import OptimizerSettings


def learning_rate(settings: OptimizerSettings, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    It rises linearly to the full rate at the last step of the warm-up, then falls to 0 at ``schedule_steps``, counted
    from step 0 (``steps`` if unset), and stays there.
    """
    rising = warmup_end(settings, steps)
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    if settings.schedule == "constant":
        return settings.learning_rate
    falling = max(1, (settings.schedule_steps or steps) - rising)
    progress = min(1.0, (step - rising) / falling)
    if settings.schedule == "linear":
        return settings.learning_rate * (1 - progress)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_end(settings: OptimizerSettings, steps: int) -> int:
    """Return the number of steps over which the learning rate rises."""
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    return round(settings.warmup_share * steps)


QUERY_WEIGHTS = "query_weights"
"""Name of the learned query weights, float32 [V], among the trained weights of a checkpoint."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


class OptimizerStep:
    """AdamW over the trained parameters of a model, whole or sharded."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        self._model, self._settings = model, settings
        self._optimizer = make_optimizer(model, settings)

    def begin(self, step: int, steps: int) -> float:
        """Set the learning rate of a step, and return it."""
        rate = learning_rate(self._settings, step, steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        return rate

    def apply(self) -> Tensor:
        """Clip the gradients, update the weights and drop the gradients; return the norm before clipping, a scalar."""
        limit = self._settings.max_grad_norm
        parameters = trained_parameters(self._model).values()
        norm = nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit)
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


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name; a tied parameter occurs once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """Create AdamW over the trained parameters; weight decay applies to matrices, not to biases and norms."""
    parameters = trained_parameters(model).values()
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=True,
    )


def full_tensor(tensor: Tensor) -> Tensor:
    """Return a whole tensor on the CPU; for a sharded tensor, a collective operation of all workers."""
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().cpu()


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Yield moments and step counts as ``<parameter>/<name>``, whole and on the CPU; nothing before the first step."""
    for name, parameter in trained_parameters(model).items():
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            yield f"{name}/{key}", full_tensor(value)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the tensors of ``optimizer_tensors``."""
    if not tensors:
        return
    for name, parameter in trained_parameters(model).items():
        state = {key: _as(tensors[f"{name}/{key}"], parameter) for key in _MOMENTS}
        optimizer.state[parameter] = {"step": tensors[f"{name}/step"].clone().to(parameter.device), **state}


def _as(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return a copy of a whole tensor, divided among the workers like a parameter."""
    if isinstance(parameter, DTensor):
        return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)
    return tensor.clone().to(parameter.device)


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy trained parameters into a model, whole or sharded."""
    for name, parameter in trained_parameters(model).items():
        parameter.copy_(_as(weights[name], parameter))
