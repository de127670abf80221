import numpy as np
import pytest
import torch

from lsr_prod.training.twins import draw, seed_torch, seed_value

M = 2**64 - 1


def slow_draw(*names: int) -> int:
    state = 0
    for name in names:
        value = ((state ^ (name & M)) + 0x9E3779B97F4A7C15) & M
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & M
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & M
        state = value ^ (value >> 31)
    return state


@pytest.mark.parametrize("names", [(0,), (1,), (-1,), (7, 2**62, -5), (0, 0, 0), (1, 2, 3)])
def test_draw_is_splitmix_of_names(names: tuple[int, ...]):
    assert int(draw(*names)) == slow_draw(*names)


def test_draw_broadcasts_names():
    grid = draw(3, np.arange(4)[:, None], np.arange(5))
    assert grid.shape == (4, 5)
    assert grid.dtype == np.uint64
    assert [[int(value) for value in row] for row in grid] == [[slow_draw(3, i, j) for j in range(5)] for i in range(4)]


def test_draw_is_uniform_and_depends_on_order_of_names():
    values = draw(0, np.arange(200_000))
    assert len(np.unique(values)) == 200_000
    # Every bit is set in half of them, within five standard errors.
    for bit in range(64):
        share = float(((values >> np.uint64(bit)) & np.uint64(1)).mean())
        assert abs(share - 0.5) < 5 * 0.5 / 200_000**0.5
    assert int(draw(1, 2)) != int(draw(2, 1))


def test_seed_value_is_deterministic_and_distinct_by_position() -> None:
    places = [(0, step, rank, chunk) for step in range(20) for rank in range(4) for chunk in range(4)]
    values = [seed_value(*place) for place in places]
    assert values == [seed_value(*place) for place in places]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 2**63 for value in values)


def test_seed_torch_repeats_numbers_of_position() -> None:
    seed_torch(3, 1)
    first = torch.rand(4)
    seed_torch(3, 2)
    other = torch.rand(4)
    seed_torch(3, 1)
    assert torch.equal(torch.rand(4), first)
    assert not torch.equal(other, first)
