import torch
from torch import Tensor

from lsr_prod.training.process_group import largest_of_workers, sum_of_workers
from tests.training.gloo import run_workers


def _both(rank: int) -> list[Tensor]:
    values = torch.tensor([1, 10 * rank, -rank], dtype=torch.int64)
    results = [sum_of_workers(values), largest_of_workers(values.double())]
    assert values.tolist() == [1, 10 * rank, -rank], "what is given stays as it is"
    return results


def test_totals_are_identity_without_workers() -> None:
    values = torch.tensor([1.0, 2.0])
    assert sum_of_workers(values) is values
    assert largest_of_workers(values) is values


def test_totals_are_equal_on_all_workers() -> None:
    for total, largest in run_workers(_both, 2):
        assert total.dtype == torch.int64
        assert total.tolist() == [2, 10, -1]
        assert largest.tolist() == [1.0, 10.0, 0.0]
