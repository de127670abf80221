"""Steps of the optimizer, and the weights that they change, for whatever loss."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from lsr_prod.config.optimization import OptimizerSettings
from lsr_prod.training.optimizer import (
    full_tensor,
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    trained_parameters,
)
from lsr_prod.training.schedules import learning_rate

__all__ = ["Updates", "load_weights"]


class Updates:
    """AdamW over the trained parameters of a model, whole or sharded."""

    def __init__(self, model: nn.Module, settings: OptimizerSettings) -> None:
        """Begin without a step.

        Args:
            model: spread over the workers already.
            settings: of AdamW and its rate.
        """
        self._model, self._settings = model, settings
        self._optimizer = make_optimizer(model, settings)

    def begin(self, step: int, steps: int) -> float:
        """Set the learning rate of a step, and return it."""
        rate = learning_rate(self._settings, step, steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        return rate

    def apply(self) -> float:
        """Use the gradients, then drop them; returns their norm, before it was limited."""
        limit = self._settings.max_grad_norm
        parameters = trained_parameters(self._model).values()
        norm = float(full_tensor(nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit)))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """The trained parameters, whole and on the CPU; every worker has to ask at the same time.

        Args:
            keep: whether this worker wants them; the others get none.
        """
        # Gathered one after the other, so that only one is whole on the other workers.
        gathered = ((name, full_tensor(p)) for name, p in trained_parameters(self._model).items())
        return {name: value.clone() for name, value in gathered if keep}

    def state(self) -> Iterable[tuple[str, Tensor]]:
        """What a checkpoint keeps beside the weights; every worker has to ask at the same time."""
        return optimizer_tensors(self._model, self._optimizer)

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        load_weights(self._model, weights)
        load_optimizer(self._model, self._optimizer, state)


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put trained parameters into a model whose parameters are whole or sharded.

    Raises:
        KeyError: one is missing.
    """
    from torch.distributed.tensor import DTensor, distribute_tensor

    for name, parameter in trained_parameters(model).items():
        value = weights[name].to(parameter.device)
        if isinstance(parameter, DTensor):
            value = distribute_tensor(value, parameter.device_mesh, parameter.placements)
        parameter.copy_(value)
