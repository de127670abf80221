import numpy as np
import pytest
import torch
from torch import Tensor

from lsr_prod.training import block_dot
from lsr_prod.training.kept_terms import Vectors, cut


def vectors(seed: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.relu(torch.randn(rows, 17, generator=generator, dtype=torch.float64))


def dense(kept: Vectors) -> np.ndarray:
    return (kept if isinstance(kept, Tensor) else kept.dense()).detach().numpy()


CUTS = [(0, 0), (3, 5), (0, 5), (3, 0)]


@pytest.mark.parametrize(("qk", "dk"), CUTS)
def test_dot_of_all_queries_with_all_documents(qk: int, dk: int) -> None:
    queries, documents = cut(vectors(0, 3), qk), cut(vectors(1, 4), dk)
    expected = [[float(np.dot(q, d)) for d in dense(documents)] for q in dense(queries)]
    np.testing.assert_allclose(block_dot.dot(queries, documents), expected)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize(("qk", "dk"), CUTS)
def test_pair_dot_of_own_documents_and_gradients(qk: int, dk: int, c: int) -> None:
    queries, documents = vectors(2, 4).requires_grad_(), vectors(3, 4 * c).requires_grad_()
    pairs = block_dot.pair_dot(cut(queries, qk), cut(documents, dk))
    all_scores = block_dot.dot(cut(queries, qk), cut(documents, dk))
    own = torch.stack([all_scores[i, i * c : (i + 1) * c] for i in range(4)])
    torch.testing.assert_close(pairs, own)
    factors = torch.randn(4, c, dtype=torch.float64)
    inputs = (queries, documents)
    for ours, plain in zip(
        torch.autograd.grad((pairs * factors).sum(), inputs),
        torch.autograd.grad((own * factors).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize(("qk", "dk"), CUTS)
def test_cosine_matches_definition(qk: int, dk: int) -> None:
    queries, documents = cut(vectors(4, 3), qk), cut(vectors(5, 4), dk)
    cosines = block_dot.cosine(block_dot.dot(queries, documents), block_dot.norms(queries), block_dot.norms(documents))
    q, d = dense(queries), dense(documents)
    expected = [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in d] for a in q]
    np.testing.assert_allclose(cosines, expected)


def test_cosine_of_zero_vector_is_zero_with_finite_gradient() -> None:
    queries, documents = torch.zeros(1, 5, requires_grad=True), torch.rand(2, 5).requires_grad_()
    cosines = block_dot.cosine(block_dot.dot(queries, documents), block_dot.norms(queries), block_dot.norms(documents))
    cosines.sum().backward()
    assert cosines.tolist() == [[0.0, 0.0]]
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(documents.grad).all()


def test_cosine_gradcheck() -> None:
    def cosines(queries: Tensor, documents: Tensor) -> Tensor:
        return block_dot.cosine(block_dot.dot(queries, documents), block_dot.norms(queries), block_dot.norms(documents))

    assert torch.autograd.gradcheck(cosines, (vectors(6, 2).requires_grad_(), vectors(7, 3).requires_grad_()))
