import pytest
import torch
from torch import nn

from lsr_prod.training.encoder_setup import set_dropout
from lsr_prod_contrib.cpu_training.dropout import SeededDropout, use_cpu_dropout


def test_dropout_scales_kept_elements_and_its_gradient_has_the_same_mask() -> None:
    torch.manual_seed(0)
    dropout = SeededDropout(0.25)
    values = torch.rand(50, 401) + 1
    values.requires_grad_()
    dropped = dropout(values)
    kept = dropped != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)
    torch.testing.assert_close(dropped, torch.where(kept, values / 0.75, 0.0))
    above = torch.rand_like(dropped)
    torch.autograd.backward(dropped, above)
    torch.testing.assert_close(values.grad, torch.where(kept, above / 0.75, 0.0))


def test_equal_generator_states_give_equal_masks_and_others_differ() -> None:
    dropout, values = SeededDropout(0.5), torch.ones(1000)
    torch.manual_seed(3)
    first, second = dropout(values), dropout(values)
    torch.manual_seed(3)
    assert torch.equal(dropout(values), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_rates_of_0_and_1_keep_everything_and_nothing(rate: float) -> None:
    values = torch.rand(64, requires_grad=True)
    dropped = SeededDropout(rate)(values)
    dropped.sum().backward()
    assert torch.equal(dropped, values * (1 - rate))
    assert values.grad is not None
    assert torch.equal(values.grad, torch.full_like(values, 1 - rate))


def test_evaluation_changes_nothing() -> None:
    values = torch.rand(64)
    assert torch.equal(SeededDropout(0.5).eval()(values), values)


def test_every_dropout_is_replaced_and_its_rate_can_still_be_set() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.3), nn.AlphaDropout(0.2)))
    model.eval()
    use_cpu_dropout(model)
    inner = model[1]
    assert isinstance(inner[0], SeededDropout)
    assert type(inner[1]) is nn.AlphaDropout
    assert (inner[0].p, inner[0].training) == (0.3, False)
    set_dropout(model, 0.1)
    assert inner[0].p == 0.1


def test_no_tensor_is_kept_for_the_backward_pass() -> None:
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
        SeededDropout(0.5)(torch.rand(64, requires_grad=True))
    assert not saved
