import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from lsr_prod.model import SparseEncoder, pooled_head
from lsr_prod.model.pooled_head import find_argmax, pool_vocabulary
from lsr_prod.model.pooling import pooled_positions
from lsr_prod.training.process_group import leave_process_group
from tests.model.tiny import ARCHITECTURES, tiny_checkpoint

ACTIVATIONS = ("log1p_relu", "l0")


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, pooled: Tensor, *, activation: str) -> Tensor:
    """The definition: logits, mask, maximum (of equal ones the first), activation."""
    logits = nn.functional.linear(hidden, weight, bias).masked_fill(~pooled[:, :, None], float("-inf"))
    weights = torch.log1p(torch.relu(logits.max(dim=1).values))
    return torch.log1p(weights) if activation == "l0" else weights


def parts(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, bias: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Hidden states [B, L, d], output matrix [V, d] and bias [V] for shape B, L, d, V, all with gradients."""
    B, L, d, V = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = ((B, L, d), (V, d), (V,))
    made = [torch.randn(*size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]
    return made[0], made[1], made[2] if bias else None


def gradients(
    form: Callable[..., Tensor], tensors: tuple[Tensor | None, ...], *rest: Any, **kwargs: Any
) -> list[Tensor]:
    """Return the weights, then the gradient of each given tensor, for a fixed upstream gradient."""
    weights = form(*tensors, *rest, **kwargs)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
    upstream[torch.rand(weights.shape, generator=generator) < 0.3] = 0
    there = [tensor for tensor in tensors if tensor is not None]
    return [weights, *torch.autograd.grad(weights, there, upstream)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.fixture(params=[(512, 1024, 1 << 20), (3, 5, 4)], ids=["whole", "many tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default tile sizes, and sizes so small that every loop runs many times."""
    terms, tokens, pairs = request.param
    monkeypatch.setattr(pooled_head, "_CPU_TILE", (terms, tokens))
    monkeypatch.setattr(pooled_head, "_PAIRS", pairs)


@pytest.fixture(params=[True, False], ids=["reads", "no reads"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of a CPU, and that of a GPU, whose shapes do not depend on values."""
    monkeypatch.setattr(pooled_head, "are_free", lambda _: request.param)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.usefixtures("tiles", "reads")
def test_gradcheck(activation: str, bias: bool) -> None:
    hidden, weight, shift = parts(4, 5, 3, 7, dtype=torch.float64, bias=bias)
    pooled = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]).bool()
    inputs = (hidden, weight) if shift is None else (hidden, weight, shift)

    def head(hidden: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
        return pool_vocabulary(hidden, weight, shift, pooled, activation=activation)

    assert head(*inputs).dtype == torch.float64
    assert torch.autograd.gradcheck(head, inputs)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pooled_tokens", ["all", "not_bos"])
@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
@pytest.mark.usefixtures("tiles", "reads")
def test_weights_and_gradients_equal_plain_implementation(activation: str, pooled_tokens: Any, padding: str) -> None:
    mask = torch.ones(5, 9, dtype=torch.int64)
    for row, cut in enumerate((0, 3, 8, 9, 1)):  # one text has a single token, one has none
        if padding in ("left", "both"):
            mask[row, : cut // (2 if padding == "both" else 1)] = 0
        if padding in ("right", "both"):
            mask[row, 9 - (cut - cut // 2 if padding == "both" else cut) :] = 0
    pooled = pooled_positions(mask, pooled_tokens)
    for bias in (True, False):
        tensors = parts(5, 9, 8, 31, bias=bias)
        found = gradients(pool_vocabulary, tensors, pooled, activation=activation)
        assert_same(found, gradients(plain, tensors, pooled, activation=activation))
        assert found[0].dtype == torch.float32
        assert not found[0][~pooled.any(dim=1)].any(), "a text without a pooled token is the zero vector"
        assert not found[1][~pooled].any(), "and what is not pooled has no gradient"


@pytest.mark.long
@settings(max_examples=150)
@given(data=st.data())
def test_every_batch_shape_equals_plain_implementation(data: st.DataObject) -> None:
    B, L, d, V = (data.draw(st.integers(1, top)) for top in (6, 9, 5, 40))
    pooled = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=L, max_size=L), min_size=B, max_size=B)))
    activation = data.draw(st.sampled_from(ACTIVATIONS))
    tensors = parts(B, L, d, V, seed=data.draw(st.integers(0, 99)), bias=data.draw(st.booleans()))
    tile, pairs = (data.draw(st.integers(1, 45)), data.draw(st.integers(1, 60))), data.draw(st.integers(1, 300))
    free = data.draw(st.booleans())
    # After all draws: one of them may end the example, and small tiles would slow down every later test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled_head, "_CPU_TILE", tile)
        patch.setattr(pooled_head, "_PAIRS", pairs)
        patch.setattr(pooled_head, "are_free", lambda _: free)
        found = gradients(pool_vocabulary, tensors, pooled, activation=activation)
        maxima = find_argmax(*tensors, pooled, activation=activation)
    assert_same(found, gradients(plain, tensors, pooled, activation=activation))
    again = gradients(pool_vocabulary, tensors, pooled, activation=activation, found=maxima)
    assert all(torch.equal(one, other) for one, other in zip(again, found, strict=True))


@settings(max_examples=50)
@given(seed=st.integers(0, 999), L=st.integers(1, 8))
def test_first_pooled_token_of_equal_maxima_gets_gradient(seed: int, L: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-1, 2, (4, L, 2), generator=generator).float().requires_grad_()  # few values: many ties
    weight = torch.randint(-1, 2, (12, 2), generator=generator).float().requires_grad_()
    pooled = torch.rand(4, L, generator=generator) < 0.7
    found = gradients(pool_vocabulary, (hidden, weight, None), pooled, activation="log1p_relu")
    with torch.no_grad():
        logits = (hidden @ weight.t()).masked_fill(~pooled[:, :, None], float("-inf"))
        first = (logits == logits.amax(dim=1, keepdim=True)).to(torch.uint8).argmax(dim=1)  # [B, V]
    chosen = hidden.gather(1, first[:, :, None].expand(-1, -1, 2))  # [B, V, d]

    def by_hand(hidden: Tensor, weight: Tensor, bias: None) -> Tensor:
        chosen = hidden.gather(1, first[:, :, None].expand(-1, -1, 2))
        return torch.log1p(torch.relu((chosen * weight).sum(dim=2))) * pooled.any(dim=1, keepdim=True)

    assert chosen.shape == (4, 12, 2)
    assert_same(found, gradients(by_hand, (hidden, weight, None)))


def test_only_required_gradients_are_computed() -> None:
    hidden, weight, bias = parts(3, 4, 5, 11)
    pooled = torch.ones(3, 4, dtype=torch.bool)
    expected = gradients(pool_vocabulary, (hidden, weight, bias), pooled, activation="l0")
    assert bias is not None
    for wanted in range(3):
        tensors = [tensor.detach().requires_grad_(i == wanted) for i, tensor in enumerate((hidden, weight, bias))]
        weights = pool_vocabulary(*tensors, pooled, activation="l0")
        generator = torch.Generator().manual_seed(1)
        upstream = torch.randn(weights.shape, generator=generator)
        upstream[torch.rand(weights.shape, generator=generator) < 0.3] = 0
        weights.backward(upstream)
        assert torch.equal(tensors[wanted].grad, expected[1 + wanted])
    with torch.inference_mode():
        assert torch.equal(pool_vocabulary(hidden, weight, bias, pooled, activation="l0"), expected[0])
    weights = pool_vocabulary(hidden.detach(), weight.detach(), bias.detach(), pooled, activation="l0")
    assert weights.grad_fn is None


def test_logits_of_all_tokens_are_never_allocated() -> None:
    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            for one in made if isinstance(made, tuple | list) else (made,):
                if isinstance(one, Tensor):
                    self.largest = max(self.largest, one.numel())
            return made

    hidden, weight, bias = parts(8, 200, 16, 9000)
    with Sizes() as sizes:
        pool_vocabulary(hidden, weight, bias, torch.ones(8, 200, dtype=torch.bool), activation="l0").sum().backward()
    assert sizes.largest <= 1024 * 512 < 8 * 200 * 9000 / 20


@pytest.mark.parametrize("length", [256, 257])
def test_positions_use_smallest_dtype(length: int) -> None:
    hidden, weight, _ = parts(1, length, 4, 9)
    pooled = torch.ones(1, length, dtype=torch.bool)
    maxima = find_argmax(hidden, weight, None, pooled, activation="l0")
    assert maxima.positions.dtype == (torch.uint8 if length == 256 else torch.int16)
    assert torch.equal(maxima.positions.long(), (hidden @ weight.t()).argmax(dim=1))


def test_autocast_applies_to_products_and_sums_stay_float32() -> None:
    hidden, weight, bias = parts(4, 30, 32, 70)
    pooled = torch.rand(4, 30, generator=torch.Generator().manual_seed(0)) < 0.8
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(pool_vocabulary, (hidden, weight, bias), pooled, activation="log1p_relu")
        under = gradients(plain, (hidden, weight, bias), pooled, activation="log1p_relu")
    assert all(one.dtype == torch.float32 for one in found)
    torch.testing.assert_close(found[0], under[0].float(), atol=0.02, rtol=0.02)
    # A maximum in 16 bits may belong to another token; the gradient is exact for that token.
    with torch.autocast("cpu", torch.bfloat16):
        maxima = find_argmax(hidden, weight, bias, pooled, activation="log1p_relu")

    def at_the_found(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        chosen = hidden.gather(1, maxima.positions.long()[:, :, None].expand(-1, -1, 32))
        return torch.log1p(torch.relu((chosen * weight).sum(dim=2) + bias))

    exact = gradients(at_the_found, (hidden, weight, bias))
    for one, other in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("name", ["hidden", "weight"])
def test_nan_and_infinity_are_propagated(name: str) -> None:
    hidden, weight, bias = (None if tensor is None else tensor.detach() for tensor in parts(2, 3, 4, 5))
    (hidden if name == "hidden" else weight).view(-1)[0] = float("nan")
    pooled = torch.ones(2, 3, dtype=torch.bool)
    assert pool_vocabulary(hidden, weight, bias, pooled, activation="l0").isnan().any()


# --- in a model ---


def batch(pad: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(8, 97, (4, 10), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, 6:], mask[2, 1:] = 0, 0
    ids[mask == 0] = pad
    return ids, mask


def loss_of(weights: Tensor) -> Tensor:
    """Weights that differ between texts, so that an average over workers is visible."""
    scale = torch.arange(1, weights.numel() + 1).view(weights.shape).remainder(7)
    return (weights * scale).sum() + weights.mean(dim=0).square().sum()


def plain_forward(encoder: SparseEncoder, ids: Tensor, mask: Tensor) -> Tensor:
    logits = encoder.model(input_ids=ids, attention_mask=mask).logits
    weights = torch.log1p(torch.relu(logits.masked_fill(mask[:, :, None] == 0, float("-inf")).amax(dim=1)))
    return torch.log1p(weights) if encoder.card.activation == "l0" else weights


def named_gradients(encoder: SparseEncoder, weights: Tensor) -> dict[str, Tensor]:
    encoder.zero_grad()
    loss_of(weights).backward()
    return {name: value.grad.clone() for name, value in encoder.named_parameters() if value.grad is not None}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_of_all_weights_equal_plain_implementation(checkpoint: Path, tied: bool) -> None:
    encoder = SparseEncoder.load(checkpoint, activation="l0")
    ids, mask = batch(encoder.model.config.pad_token_id)
    output = encoder.model.get_output_embeddings()
    assert (output.weight is encoder.model.get_input_embeddings().weight) == encoder.model.config.tie_word_embeddings
    if not tied:
        output.weight = nn.Parameter(output.weight.detach() * 1.1)
    torch.testing.assert_close(encoder(ids, mask), plain_forward(encoder, ids, mask), atol=1e-5, rtol=1e-5)
    expected = named_gradients(encoder, plain_forward(encoder, ids, mask))
    found = named_gradients(encoder, encoder(ids, mask))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")


def test_gradient_checkpointing_and_found_argmax_keep_gradients(checkpoint: Path) -> None:
    encoder = SparseEncoder.load(checkpoint)
    ids, mask = batch(encoder.model.config.pad_token_id)
    expected = named_gradients(encoder, encoder(ids, mask))
    if encoder.model.supports_gradient_checkpointing:  # Albert, whose layers share weights, does not
        encoder.model.activation_checkpointing_enable()
    encoder.train()
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    found = encoder.find_argmax(ids, mask)
    weights = encoder(ids, mask, found=found)
    assert torch.equal(weights, found.weights)
    again = named_gradients(encoder, weights)
    assert again.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(again[name], gradient, atol=1e-4, rtol=1e-4)


# --- in two processes ---


def _worker(rank: int, strategy: str, folder: str, results: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{results}.store", rank=rank, world_size=2)
    try:
        encoder = SparseEncoder.load(folder)
        ids, mask = batch(encoder.model.config.pad_token_id)
        ids, mask = ids[2 * rank : 2 * rank + 2], mask[2 * rank : 2 * rank + 2]
        if strategy == "ddp":
            forward: nn.Module = nn.parallel.DistributedDataParallel(encoder)
            found = encoder.find_argmax(ids, mask)
        else:
            for layer in encoder.model.base_model.encoder.layer:
                fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
            fully_shard(encoder, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
            register_fsdp_forward_method(encoder, "find_argmax")
            forward, found = encoder, encoder.find_argmax(ids, mask)
        made = {}
        for name, known in (("one pass", None), ("two passes", found)):
            encoder.zero_grad()
            loss_of(forward(ids, mask, found=known)).backward()
            for parameter, value in encoder.named_parameters():
                gradient = value.grad.full_tensor() if strategy == "fsdp" else value.grad
                made[name, parameter] = gradient.clone()
        if rank == 0:
            torch.save(made, results)
    finally:
        leave_process_group()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_workers_average_plain_gradients(strategy: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model", "bert")
    encoder = SparseEncoder.load(folder)
    ids, mask = batch(encoder.model.config.pad_token_id)
    halves = [
        named_gradients(encoder, plain_forward(encoder, ids[part], mask[part])) for part in (slice(0, 2), slice(2, 4))
    ]
    results = tmp_path / "gradients.pt"
    arguments = (strategy, str(folder), str(results))
    torch.multiprocessing.start_processes(_worker, arguments, nprocs=2, start_method="forkserver")
    made = torch.load(results, weights_only=True)
    assert {name for _, name in made} == set(halves[0])
    for (_, name), gradient in made.items():
        expected = (halves[0][name] + halves[1][name]) / 2
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")
