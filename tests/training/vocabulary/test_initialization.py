import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.vocabulary import initialization as module
from lsr_prod.training.vocabulary.initialization import Combination, Initialization, copy_overlap, semantic, subtoken
from tests.training.vocabulary.test_sparsemax import plain_sparsemax

OLD = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0], [-1.0, 3.0]])
ALIGNED = np.array([2, -1, 0, -1])  # new 0 is old 2, new 2 is old 0; new 1 and 3 are new


def center(aligned: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(aligned[aligned >= 0])


def test_sub_token_rows_equal_values_by_hand():
    made = Initialization(copy_overlap(ALIGNED, subtoken([[9], [1, 2], [9], [3]])), center(ALIGNED))
    torch.testing.assert_close(made.rows(OLD), torch.tensor([[4.0, 4.0], [2.0, 3.0], [1.0, 0.0], [-1.0, 3.0]]))
    torch.testing.assert_close(made.values(torch.tensor([1.0, 2.0, 3.0, 4.0])), torch.tensor([3.0, 2.5, 1.0, 4.0]))


def test_rows_without_entries_are_mean_of_overlap():
    made = Initialization(copy_overlap(ALIGNED), center(ALIGNED))
    torch.testing.assert_close(made.rows(OLD), torch.tensor([[4.0, 4.0], [2.5, 2.0], [1.0, 0.0], [2.5, 2.0]]))


def test_term_without_pieces_is_mean_of_overlap():
    made = Initialization(copy_overlap(ALIGNED, subtoken([[], [], [], [3]])), center(ALIGNED))
    torch.testing.assert_close(made.rows(OLD)[1], torch.tensor([2.5, 2.0]))


def test_random_rows_have_scale_of_old_rows_and_depend_on_seed():
    old = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 3 + 1
    aligned = np.where(np.arange(2000) < 5, np.arange(2000), -1)
    drawn = [
        Initialization(copy_overlap(aligned), center(aligned), drawn=True, seed=seed).rows(old) for seed in (0, 0, 1)
    ]
    torch.testing.assert_close(drawn[0][:5], old[:5], rtol=0, atol=0)
    assert drawn[0][5:].mean().abs() < 0.05
    assert drawn[0][5:].std() == pytest.approx(float(old.std()), rel=0.02)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0][5:], drawn[2][5:])


def test_random_all_keeps_no_old_row():
    made = Initialization(copy_overlap(np.full(4, -1)), center(ALIGNED), drawn=True).rows(OLD)
    assert not any(torch.equal(row, old) for row in made for old in OLD)


def plain_semantic(aligned: np.ndarray, target: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Equations 7 to 9, token by token."""
    overlap = [u for u in range(len(aligned)) if aligned[u] >= 0]
    made = np.empty((len(aligned), old.shape[1]))
    for t in range(len(aligned)):
        if aligned[t] >= 0:
            made[t] = old[aligned[t]]
            continue
        cosines = [target[t] @ target[u] / np.linalg.norm(target[t]) / np.linalg.norm(target[u]) for u in overlap]
        made[t] = sum(w * old[aligned[u]] for w, u in zip(plain_sparsemax(np.array(cosines)), overlap, strict=True))
    return made


@given(st.integers(0, 10_000), st.integers(2, 60), st.integers(1, 7))
def test_semantic_rows_equal_equations_of_paper(seed: int, tokens: int, block: int):
    random = np.random.default_rng(seed)
    aligned = np.where(random.random(tokens) < 0.6, random.permutation(tokens), -1)
    aligned[0] = 0
    target, old = random.normal(size=(tokens, 4)).astype(np.float32), random.normal(size=(tokens, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        combination = semantic(aligned, torch.from_numpy(target))
    made = Initialization(combination, center(aligned)).rows(torch.from_numpy(old)).numpy()
    np.testing.assert_allclose(made, plain_semantic(aligned, target.astype(np.float64), old), atol=1e-5)
    np.testing.assert_array_equal(made[aligned >= 0], old[aligned[aligned >= 0]])


def test_entries_are_nearest_tokens_with_weights():
    target = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    cosine = 1 / 1.01**0.5  # with token 0; a tenth of it with token 2
    threshold = (1.1 * cosine - 1) / 2
    assert semantic(np.array([7, -1, 3]), target).entries(1) == [
        (7, pytest.approx(cosine - threshold)),
        (3, pytest.approx(0.1 * cosine - threshold)),
    ]
    assert Combination.of_lists([[1, 2]], [[0.25, 0.75]]).entries(0) == [(2, 0.75), (1, 0.25)]
