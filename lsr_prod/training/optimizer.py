"""AdamW: which parameters decay, and its state as named tensors."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lsr_prod.config.train import OptimizerSettings

__all__ = ["full_tensor", "load_optimizer", "make_optimizer", "optimizer_tensors", "trained_parameters"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name; a tied one stands once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW over the trained parameters; matrices decay, biases and norms do not. The rate is set in every step."""
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
    """A tensor whole and on the CPU; of a sharded one every worker has to ask at the same time."""
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().cpu()


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The moments and step counts as ``<parameter>/<name>``, whole and on the CPU; none before the first step."""
    for name, parameter in trained_parameters(model).items():
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            yield f"{name}/{key}", full_tensor(value)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what ``optimizer_tensors`` gave.

    Raises:
        KeyError: a moment of a trained parameter is missing.
    """
    if not tensors:
        return
    for name, parameter in trained_parameters(model).items():
        state = {key: _as(tensors[f"{name}/{key}"], parameter) for key in _MOMENTS}
        optimizer.state[parameter] = {"step": tensors[f"{name}/step"].clone().to(parameter.device), **state}


def _as(tensor: Tensor, parameter: Tensor) -> Tensor:
    if isinstance(parameter, DTensor):
        return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)
    return tensor.clone().to(parameter.device)
