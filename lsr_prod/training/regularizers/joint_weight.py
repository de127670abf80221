"""Weight of joint FLOPS in relation to the batch: the share that falls on each query's own positive.

Over M documents, mean query . mean document contains the product of each query with its own positive with a weight of
1 / M. A loss of dot products with temperature tau pulls this product up with a gradient of at most weight / tau, joint
FLOPS pushes it down with joint / M. The quotient of the two, ``joint * tau / (weight * M)``, is the own share. At 1 the
push is always stronger and all vectors become empty, whatever the data. The paper (ESPLADE, C.3) has 5 / 3,072.
"""

from lsr_prod.config.objective import LossSettings
from lsr_prod.config.train import FinetuneSettings

MAX_OWN_SHARE = 0.05
"""Own share above which a stage is warned about."""


def own_share(joint: float, losses: list[LossSettings], documents: int) -> float | None:
    """Return the own share of a joint FLOPS weight with the estimator ``all_pairs``.

    The loss margin_mse has no largest gradient; it counts with that of a margin wrong by one unit, 2.

    Returns:
        The share; None if all losses are of cosines, which no shrinking of vectors changes.
    """
    pull = sum(_pull(loss) for loss in losses)
    return joint / documents / pull if pull else None


def joint_warnings(stage: FinetuneSettings) -> list[str]:
    """Return a sentence per regularizer of the stage whose own share is above ``MAX_OWN_SHARE``."""
    documents = stage.batch.queries // stage.batch.accumulate * (1 + stage.batch.negatives)
    sentences = []
    for number, settings in enumerate(stage.objective.sparsity.regularizers):
        if settings.regularizer != "joint_flops" or settings.estimator != "all_pairs":
            continue
        share = own_share(settings.joint, stage.objective.losses, documents)
        if share is not None and share > MAX_OWN_SHARE:
            largest = settings.joint * MAX_OWN_SHARE / share
            sentences.append(
                f"objective.sparsity.regularizers.{number}.joint is {settings.joint:g}: over {documents} documents, "
                f"{share:.0%} of the largest gradient of the losses goes into pushing each query away from its own "
                f"positive (bound {MAX_OWN_SHARE:.0%}); lower it to {largest:.2g} or less, enlarge the batch, or set "
                "estimator to off_diagonal"
            )
    return sentences


def _pull(loss: LossSettings) -> float:
    """Return the largest gradient of a loss with respect to the dot product of a query and its positive."""
    if loss.similarity == "cosine":
        return 0.0
    return loss.weight * (2.0 if loss.loss == "margin_mse" else 1 / loss.temperature)
