import pytest
import torch
from torch import Tensor

from lsr_prod.model import pooled_head
from lsr_prod.training import block_dot as module
from lsr_prod.training.block_dot import block_dot
from lsr_prod.training.kept_terms import Vectors, cut


@pytest.fixture(params=[1, 3, 7, 8192])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "BLOCK", request.param)
    return request.param


def vectors(seed: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.relu(torch.randn(rows, 23, generator=generator, dtype=torch.float64))


def dense(kept: Vectors) -> Tensor:
    return kept if isinstance(kept, Tensor) else kept.dense()


@pytest.mark.parametrize(("qk", "dk"), [(4, 6), (0, 6), (4, 0), (20, 20)])
@pytest.mark.parametrize(("n", "m"), [(5, 7), (1, 1), (0, 4)])
@pytest.mark.parametrize("reads", [True, False])
def test_block_dot_matches_dense_product_in_value_and_gradients(
    block: int, qk: int, dk: int, n: int, m: int, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled_head, "are_free", lambda _: reads)
    outcomes = []
    for product in (block_dot, lambda a, b: dense(a) @ dense(b).T):
        queries, documents = vectors(0, n).requires_grad_(), vectors(1, m).requires_grad_()
        scores = product(cut(queries, qk), cut(documents, dk))
        (scores * torch.arange(n * m).view(n, m)).sum().backward()
        outcomes.append((scores.detach(), queries.grad, documents.grad))
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain)


def test_empty_vectors_score_zero() -> None:
    nothing = cut(torch.zeros(2, 9, requires_grad=True), 3)
    assert block_dot(nothing, torch.ones(4, 9)).tolist() == [[0.0] * 4] * 2


def test_gradcheck(block: int) -> None:
    def scores(queries: Tensor, documents: Tensor) -> Tensor:
        return block_dot(cut(queries, 5), cut(documents, 6))

    queries, documents = vectors(2, 3).requires_grad_(), vectors(3, 4).requires_grad_()
    # Zeros stay zeros: a kept set that changes with the step of the difference is no derivative.
    assert torch.autograd.gradcheck(
        lambda a, b: scores(a * (queries.detach() > 0), b * (documents.detach() > 0)), (queries, documents)
    )


def test_block_dot_allocates_nothing_as_wide_as_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    widest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal widest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.is_floating_point():
                widest = max(widest, result.numel())
            return result

    queries, documents = (cut(torch.rand(30, 50_000), 20) for _ in range(2))
    queries.weights.requires_grad_()
    with Watch():
        block_dot(queries, documents).sum().backward()
    assert 0 < widest <= 30 * 602  # 30 rows x at most 30 * 20 terms that queries have
