"""Level of the contrastive losses at chance."""

import math

from lsr_prod.config.objective import LossSettings, ObjectiveSettings
from lsr_prod.training.losses.info_nce import CONTRASTIVE


def chance_level(
    objective: ObjectiveSettings, *, queries: int, documents: int, queue: int = 0, workers: int = 1
) -> float | None:
    """Return the sum of ``info_nce`` and ``n_pair`` if a query scores all its candidates equally.

    That is the mean of ln(B) over the queries, with B the candidates of a query: the documents of the batch (with
    ``cross_worker`` those of all workers) and of the queue, or the documents of its own row without ``in_batch``.
    Candidates that a loss masks are counted too, so the level is slightly too high if a batch has equal positives.

    Returns:
        None: no loss is contrastive.
    """
    losses = [loss for loss in objective.losses if loss.loss in CONTRASTIVE]
    if not losses:
        return None
    pools = [queries] * queries
    if not objective.cross_worker:
        pools = [len(range(query % workers, queries, workers)) for query in range(queries)]
    return sum(
        loss.weight * sum(_of_query(loss, pool, documents, queue) for pool in pools) / queries for loss in losses
    )


def _of_query(loss: LossSettings, pool: int, documents: int, queue: int) -> float:
    """Return the loss of one query whose worker sees the documents of ``pool`` queries."""
    if loss.loss == "n_pair":
        candidates = pool
    elif loss.in_batch:
        candidates = pool * documents + queue
    else:
        candidates = documents
    temperatures = {"dot": [loss.temperature], "cosine": [loss.cosine_temperature]}
    temperatures["both"] = temperatures["dot"] + temperatures["cosine"]
    if candidates == 1:
        return 0.0
    others = math.log(candidates - 1)
    # log(1 + (B - 1) exp(margin / temperature)): the margin lowers the score of the positive alone.
    return sum(_log_one_plus_exp(others + loss.margin / temperature) for temperature in temperatures[loss.similarity])


def _log_one_plus_exp(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))
