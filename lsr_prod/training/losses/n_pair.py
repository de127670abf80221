"""N-pair loss (ESPLADE, eq. 2): InfoNCE over the positives of the batch, without hard negatives."""

from torch import Tensor

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses.info_nce import info_nce
from lsr_prod.training.losses.scores import Scores


def loss(settings: LossSettings, scores: Scores, _teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return the N-pair loss summed over this worker's queries; only cosines are divided by a temperature."""
    temperature = settings.cosine_temperature if cosine else 1.0  # unscaled cosines are too close to rank
    return info_nce(scores.positives(cosine=cosine), scores.own, temperature=temperature)
