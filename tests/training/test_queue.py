import collections

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.masking import keep_top
from lsr_prod.training.queue import NegativeQueue

V = 8


def documents(seed: int, rows: int) -> torch.Tensor:
    return torch.relu(torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)))


@given(st.integers(1, 9), st.integers(1, 10), st.lists(st.integers(0, 12), max_size=6))
def test_the_newest_documents_are_held_each_with_its_heaviest_terms(size: int, terms: int, pushes: list[int]) -> None:
    queue = NegativeQueue(size, terms, V)
    plain: collections.deque[tuple[float, ...]] = collections.deque(maxlen=size)
    for seed, rows in enumerate(pushes):
        queue.push(documents(seed, rows))
        plain.extend(tuple(row) for row in keep_top(documents(seed, rows), terms).tolist())
        held = queue.rows()
        assert len(queue) == len(held) == len(plain)
        assert sorted(map(tuple, held.tolist())) == sorted(plain)
        assert torch.equal(queue.kept().dense(), held)


def test_an_empty_queue_has_no_rows() -> None:
    assert NegativeQueue(4, 2, V).rows().shape == (0, V)


@pytest.mark.parametrize("before", [1, 2, 4])
def test_a_restored_queue_goes_on_bit_for_bit(before: int) -> None:
    straight, first, second = (NegativeQueue(5, 3, V) for _ in range(3))
    for step in range(6):
        straight.push(documents(step, 2))
        if step == before:
            second.load_state(first.state())
        (first if step < before else second).push(documents(step, 2))
    assert torch.equal(straight.rows(), second.rows())
    assert all(torch.equal(straight.state()[key], second.state()[key]) for key in straight.state())


def test_a_state_is_a_copy_and_holds_no_gradient() -> None:
    queue = NegativeQueue(2, 2, V)
    queue.push(documents(0, 2).requires_grad_())
    state = queue.state()
    kept = {key: value.clone() for key, value in state.items()}
    queue.push(documents(1, 2))
    assert all(torch.equal(state[key], kept[key]) for key in kept)
    assert not queue.rows().requires_grad
