"""The chance level against the losses themselves, computed for equal vectors."""

from typing import Any

import pytest
import torch

from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.training.losses.ranking import chance_level
from lsr_prod.training.objective import TrainingObjective
from tests.training.gloo import run_workers

V = 11
LOSSES: list[list[dict[str, Any]]] = [
    [{"loss": "info_nce"}],
    [{"loss": "info_nce", "temperature": 0.1, "margin": 0.3, "weight": 2.0}],
    [{"loss": "info_nce", "in_batch": False, "similarity": "both"}],
    [{"loss": "n_pair", "similarity": "cosine"}, {"loss": "info_nce", "weight": 0.5}],
]


def _losses_of_equal_vectors(
    rank: int, world: int, losses: list[dict[str, Any]], queries: int, c: int, queue: int, cross: bool
) -> float:
    objective = ObjectiveSettings.model_validate({"losses": losses, "cross_worker": cross})
    own = len(range(rank, queries, world))
    vector = torch.rand(1, V, generator=torch.Generator().manual_seed(1))
    terms = TrainingObjective(objective, vocabulary=[f"w{i}" for i in range(V)], steps=1)(
        vector.expand(own, V).clone(),
        vector.expand(own * c, V).clone(),
        teacher=None,
        step=0,
        extra_documents=vector.expand(queue, V).clone() if queue else None,
    )
    return float(terms.parts["total"])


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize(("queries", "c", "queue"), [(6, 1, 0), (5, 3, 4)])
def test_chance_level_is_loss_of_equal_vectors(losses: list[dict[str, Any]], queries: int, c: int, queue: int) -> None:
    objective = ObjectiveSettings.model_validate({"losses": losses})
    found = chance_level(objective, queries=queries, documents=c, queue=queue)
    assert found == pytest.approx(_losses_of_equal_vectors(0, 1, losses, queries, c, queue, True), rel=1e-5)


@pytest.mark.parametrize("cross", [True, False])
def test_chance_level_counts_candidates_of_other_workers(cross: bool) -> None:
    losses = LOSSES[0]
    objective = ObjectiveSettings.model_validate({"losses": losses, "cross_worker": cross})
    found = chance_level(objective, queries=5, documents=2, queue=3, workers=2)
    assert found == pytest.approx(run_workers(_losses_of_equal_vectors, 2, 2, losses, 5, 2, 3, cross)[0], rel=1e-5)


def test_chance_level_is_unknown_without_contrastive_loss() -> None:
    objective = ObjectiveSettings.model_validate({"losses": [{"loss": "margin_mse"}, {"loss": "kl"}]})
    assert chance_level(objective, queries=4, documents=2) is None
