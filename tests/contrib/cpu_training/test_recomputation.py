from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from lsr_prod.training.encoder_setup import checkpoint_layers
from lsr_prod_contrib.cpu_training.memory import Recomputation

SIZES = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "pad_token_id": 0}
MODELS: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES, intermediate_size=24)),
    "distilbert": lambda: DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=60, dim=16, hidden_dim=24, n_layers=3, n_heads=2, pad_token_id=0)
    ),
    "modernbert": lambda: ModernBertForMaskedLM(ModernBertConfig(**SIZES, intermediate_size=24)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=24)),
}


def _gradients(model: Any, recomputation: Recomputation | None, *, bf16: bool = False) -> tuple[dict[str, Tensor], int]:
    """Return the gradients of a step with dropout, and the bytes of the distinct tensors that the graph kept."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    ids = torch.randint(1, 60, (4, 9), generator=torch.Generator().manual_seed(2))
    kept: dict[int, int] = {}

    def count(tensor: Any) -> Any:
        if isinstance(tensor, Tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def step() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            return model(input_ids=ids).logits.float().square().mean()

    if recomputation is None:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda one: one):
            loss = step()
    else:
        plain = recomputation._pack
        recomputation._pack = lambda one: count(plain(one))  # type: ignore[method-assign]
        with recomputation.enabled():
            loss = step()
        recomputation._pack = plain  # type: ignore[method-assign]
    loss.backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}, sum(kept.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_are_equal_to_the_bit(name: str, checkpointed: bool, bf16: bool) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().train()
    if checkpointed:
        checkpoint_layers(model, kept=1)
    expected, _ = _gradients(model, None, bf16=bf16)
    found, _ = _gradients(model, Recomputation(model), bf16=bf16)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_graph_of_bert_keeps_less() -> None:
    model = MODELS["bert"]().train()
    _, plain = _gradients(model, None)
    _, activations = _gradients(model, Recomputation(model, norms=False))
    _, all_of_them = _gradients(model, Recomputation(model))
    tokens = 4 * 9 * 4  # bytes of one number per token
    assert plain - activations >= 3 * 24 * tokens
    assert activations - all_of_them >= 5 * 16 * tokens


def test_graph_of_bert_keeps_less_under_autocast() -> None:
    model = MODELS["bert"]().train()
    _, plain = _gradients(model, None, bf16=True)
    _, less = _gradients(model, Recomputation(model), bf16=True)
    # Of each layer: the activation, and the casts of what four layers read from layer norms.
    assert plain - less >= 3 * (24 + 4 * 16) * 4 * 9 * 2


def test_layer_that_is_called_by_keyword_is_left_to_autocast() -> None:
    norm, linear = nn.LayerNorm(4), nn.Linear(4, 4)
    recomputation = Recomputation(nn.Sequential(norm, linear))
    with recomputation.enabled(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(input=norm(torch.ones(2, 4))).dtype == torch.bfloat16


def test_memory_that_belongs_to_another_tensor_by_now_is_kept() -> None:
    gelu = nn.GELU()
    recomputation = Recomputation(nn.Sequential(gelu))
    weight = torch.rand(8, requires_grad=True)
    with recomputation.enabled():
        output = gelu(weight * 2)
        with torch.no_grad():
            output.fill_(5.0)  # in place: no longer what the activation returned
        product = output * weight
    product.sum().backward()
    assert weight.grad is not None
    assert (weight.grad >= 5.0).all()
    assert recomputation._outputs == {}


def test_changed_input_of_an_activation_is_an_error() -> None:
    gelu = nn.GELU()
    recomputation = Recomputation(nn.Sequential(gelu))
    weight = torch.rand(8, requires_grad=True)
    with recomputation.enabled():
        values = weight * 2
        product = gelu(values) * torch.rand(8, requires_grad=True)
    with torch.no_grad():
        values.zero_()
    with pytest.raises(RuntimeError, match="in place"):
        product.sum().backward()
