"""What the scores are made for; values and gradients are checked in test_loss."""

import pytest
import torch

from lsr_prod.config.objective import LossSettings
from lsr_prod.training import block_dot
from lsr_prod.training.losses.scores import Scores
from lsr_prod.training.objective import ranking_losses

N, C, V = 3, 2, 11


def values(*losses: dict[str, object], extra: torch.Tensor | None = None) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    queries, documents = torch.rand(N, V, generator=generator), torch.rand(N * C, V, generator=generator)
    settings = [LossSettings.model_validate(loss) for loss in losses]
    return ranking_losses(settings, Scores(settings, queries, documents, extra, None), torch.zeros(N, C))


def test_ranking_losses_ignore_weights_and_add_both_similarities() -> None:
    dot, cosine, both = values(
        {"loss": "info_nce", "similarity": "dot", "weight": 3.0},
        {"loss": "info_nce", "similarity": "cosine"},
        {"loss": "info_nce", "similarity": "both"},
    )
    torch.testing.assert_close(dot + cosine, both)
    torch.testing.assert_close(dot, values({"loss": "info_nce"})[0])


def test_hard_negatives_enter_info_nce_but_not_n_pair() -> None:
    info_nce, n_pair = values({"loss": "info_nce"}, {"loss": "n_pair"})
    assert info_nce > n_pair


def test_extra_documents_enter_only_in_batch_info_nce() -> None:
    losses = ({"loss": "info_nce"}, {"loss": "info_nce", "in_batch": False}, {"loss": "n_pair"}, {"loss": "kl"})
    before, after = values(*losses), values(*losses, extra=torch.rand(4, V))
    assert after[0] > before[0]
    assert [a.item() for a in after[1:]] == [b.item() for b in before[1:]]


@pytest.mark.parametrize(
    ("losses", "products"), [(["info_nce", "n_pair"], 1), (["n_pair"], 1), (["kl", "margin_mse"], 0)]
)
def test_losses_share_scores(losses: list[str], products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    dot = block_dot.dot
    monkeypatch.setattr(block_dot, "dot", lambda q, d: calls.append(len(d)) or dot(q, d))
    values(*({"loss": loss} for loss in losses))
    assert len(calls) == products
    assert calls == ([N] if losses == ["n_pair"] else [N * C] * products)
