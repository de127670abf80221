import torch

from lsr_prod.training.randomness import seed_torch, seed_value


def test_a_place_decides_and_places_differ() -> None:
    places = [(0, step, rank, chunk) for step in range(20) for rank in range(4) for chunk in range(4)]
    values = [seed_value(*place) for place in places]
    assert values == [seed_value(*place) for place in places]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 2**63 for value in values)


def test_torch_draws_the_same_at_the_same_place() -> None:
    seed_torch(3, 1)
    first = torch.rand(4)
    seed_torch(3, 2)
    other = torch.rand(4)
    seed_torch(3, 1)
    assert torch.equal(torch.rand(4), first)
    assert not torch.equal(other, first)
