"""The ranking losses by their names in the configuration (``objective.losses``).

To add a loss, write a module with a function ``loss``, enter it here, and add its name to
``config.objective.LossSettings``.
"""

from typing import Protocol

from torch import Tensor

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses import info_nce, kl, margin_mse, n_pair
from lsr_prod.training.losses.scores import Scores


class Loss(Protocol):
    """A ranking loss: the sum over this worker's queries, without the weight of its settings."""

    def __call__(self, settings: LossSettings, scores: Scores, _teacher: Tensor | None, /, *, cosine: bool) -> Tensor:
        """Return a scalar."""


LOSSES: dict[str, Loss] = {
    "info_nce": info_nce.loss,
    "n_pair": n_pair.loss,
    "margin_mse": margin_mse.loss,
    "kl": kl.loss,
}
