import pytest
import torch
from torch import Tensor

from lsr_prod.training import process_group
from tests.training.gloo import run_workers

COUNTS = [[2, 2, 2], [3, 0, 4]]


def rows_of(rank: int, counts: list[int]) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(counts[rank], 5, generator=generator, dtype=torch.float64)


def factors_of(rank: int, total: int) -> Tensor:
    """Every worker weighs the gathered rows in its own way, so that gradients differ."""
    return torch.randn(total, 5, generator=torch.Generator().manual_seed(100 + rank), dtype=torch.float64)


def gather_and_sum(rank: int, counts: list[int]) -> dict[str, Tensor | list[int] | int]:
    rows = rows_of(rank, counts).requires_grad_()
    gathered = process_group.all_rows(rows)
    (gathered * factors_of(rank, sum(counts))).sum().backward()
    weights = rows_of(rank, counts).requires_grad_()
    total = process_group.global_sum(weights.sum(dim=0))
    total.square().sum().backward()
    return {
        "gathered": gathered.detach(),
        "gradient": rows.grad,
        "total": total.detach(),
        "sum_gradient": weights.grad,
        "integers": process_group.global_sum(torch.tensor([rank + 1])),
        "counts": process_group._of_all_workers([counts[rank]], rows.device)[0],
        "shares": process_group.shares(counts[rank], 3 * counts[rank], rows.device),
        "world": process_group.world_size(),
        "rank": process_group.rank(),
    }


@pytest.fixture(scope="module")
def results() -> list[list[dict]]:
    return run_workers(all_counts, 3)


def all_counts(rank: int) -> list[dict]:
    return [gather_and_sum(rank, counts) for counts in COUNTS]


@pytest.mark.parametrize("i", range(len(COUNTS)), ids=str)
def test_all_rows_returns_all_rows_and_gradients_of_own_rows(results: list[list[dict]], i: int) -> None:
    counts = COUNTS[i]
    everything = torch.cat([rows_of(rank, counts) for rank in range(3)])
    gradient = sum(factors_of(rank, sum(counts)) for rank in range(3)).split(counts)
    for rank in range(3):
        mine = results[rank][i]
        assert torch.equal(mine["gathered"], everything)
        torch.testing.assert_close(mine["gradient"], gradient[rank])
        assert (mine["world"], mine["rank"], mine["counts"]) == (3, rank, counts)
        assert mine["shares"] == process_group.Shares(counts, *[[3 * count for count in counts]] * 2)
        assert mine["shares"].documents_of_a_query == 3


@pytest.mark.parametrize("i", range(len(COUNTS)), ids=str)
def test_global_sum_counts_gradient_once(results: list[list[dict]], i: int) -> None:
    everything = torch.cat([rows_of(rank, COUNTS[i]) for rank in range(3)]).requires_grad_()
    everything.sum(dim=0).square().sum().backward()
    whole = everything.grad.split(COUNTS[i])
    for rank in range(3):
        mine = results[rank][i]
        assert torch.equal(mine["total"], results[0][i]["total"])
        torch.testing.assert_close(mine["total"], everything.detach().sum(dim=0))
        torch.testing.assert_close(mine["sum_gradient"], whole[rank])
        assert mine["integers"].tolist() == [6]


def test_collective_operations_are_identity_without_workers() -> None:
    rows = torch.randn(3, 4)
    assert process_group.all_rows(rows) is rows
    assert process_group.global_sum(rows) is rows
    assert process_group._of_all_workers([3], rows.device) == [[3]]
    assert process_group.shares(3, 6, rows.device) == process_group.Shares([3], [6], [6])
    assert (process_group.world_size(), process_group.rank()) == (1, 0)
