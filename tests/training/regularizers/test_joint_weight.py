import pytest
import torch

from lsr_prod.config.objective import LossSettings, ObjectiveSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.regularizers import joint_warnings, own_share


def stage(*, joint: float, queries: int, loss: dict[str, object] | None = None, **fields: object) -> FinetuneSettings:
    regularizer = {"regularizer": "joint_flops", "joint": joint} | dict(fields.pop("regularizer", {}))
    return FinetuneSettings.model_validate(
        {
            "data": {"paths": ["x.jsonl"], "kind": "scores"},
            "batch": {"queries": queries} | dict(fields),
            "steps": 1,
            "objective": {"losses": [loss or {"loss": "n_pair"}], "sparsity": {"regularizers": [regularizer]}},
        }
    )


def test_weight_of_paper_is_accepted_at_its_batch_and_warned_about_at_small_ones() -> None:
    assert joint_warnings(stage(joint=5, queries=3072)) == []
    (sentence,) = joint_warnings(stage(joint=5, queries=4))
    assert "objective.sparsity.regularizers.0.joint is 5: over 4 documents, 125% of the largest gradient" in sentence
    assert "lower it to 0.2 or less, enlarge the batch, or set estimator to off_diagonal" in sentence
    assert joint_warnings(stage(joint=0.2, queries=4)) == []
    assert joint_warnings(stage(joint=5, queries=4, regularizer={"estimator": "off_diagonal"})) == []


def test_parts_of_batch_and_hard_negatives_count() -> None:
    assert joint_warnings(stage(joint=5, queries=100)) == []
    assert len(joint_warnings(stage(joint=5, queries=100, accumulate=2))) == 1
    assert joint_warnings(stage(joint=5, queries=100, accumulate=2, negatives=1)) == []


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ({"loss": "n_pair"}, 0.1),
        ({"loss": "info_nce", "temperature": 0.5}, 0.05),
        ({"loss": "info_nce", "temperature": 2.0, "weight": 4.0}, 0.05),
        ({"loss": "kl", "temperature": 3.0}, 0.3),
        ({"loss": "margin_mse"}, 0.05),
        ({"loss": "info_nce", "similarity": "both", "cosine_temperature": 0.01}, 0.1),
        ({"loss": "info_nce", "similarity": "cosine"}, None),
    ],
)
def test_own_share_by_loss(loss: dict[str, object], expected: float | None) -> None:
    share = own_share(2.0, [LossSettings.model_validate(loss)], 20)
    assert share is None if expected is None else share == pytest.approx(expected)


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_positives_are_pushed_down_at_any_score_if_own_share_is_above_one(share: float, size: float) -> None:
    """64 queries that share a term with their own positive only."""
    joint = share * 64
    settings = {
        "losses": [{"loss": "n_pair"}],
        "sparsity": {"regularizers": [{"regularizer": "joint_flops", "joint": joint}]},
    }
    objective = TrainingObjective(ObjectiveSettings.model_validate(settings), vocabulary=["a"] * 64, steps=1)
    scale = torch.tensor(size, requires_grad=True)
    objective(torch.eye(64) * scale, torch.eye(64) * scale, teacher=None, step=0).total.backward()
    assert own_share(joint, [LossSettings(loss="n_pair")], 64) == pytest.approx(share)
    assert (scale.grad > 0) == (share > 1 or size > 1)  # below 1, small scores still grow
