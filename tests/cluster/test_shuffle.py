"""Partitions and notes are the same on Ray and in this process, and errors of tasks keep their class."""

import pytest

from lsr_prod.cluster.workers import group_by_size, merge, split
from lsr_prod.errors import SourceError


def _split(first: int, last: int, partitions: int) -> tuple[list[list[int]], int]:
    numbers = range(first, last)
    return [[number for number in numbers if number % partitions == part] for part in range(partitions)], len(numbers)


def _merge(factor: int, *parts: list[int]) -> int:
    return factor * sum(sum(part) for part in parts)


def _fail(_: int) -> tuple[list[int], None]:
    raise SourceError("the file has changed")


@pytest.mark.parametrize("partitions", [1, 3])
def test_tasks_and_calls_give_equal_results(ray_local: None, partitions: int) -> None:
    results = []
    for on_ray in (False, True):
        splits = split(_split, [(0, 10, partitions), (10, 15, partitions)], partitions, task="", on_ray=on_ray)
        assert splits.notes == [10, 5]
        results.append(sorted(merge(_merge, (2,), splits, partitions, task="", on_ray=on_ray)))
    assert results[0] == results[1]
    assert sum(results[0]) == 2 * sum(range(15))


def test_error_of_a_task_is_raised_as_it_is(ray_local: None) -> None:
    with pytest.raises(SourceError, match="the file has changed"):
        split(_fail, [(1,)], 2, task="reading", on_ray=True)


def test_items_are_grouped_in_order_and_large_ones_are_alone() -> None:
    assert [*group_by_size([3, 4, 9, 1, 1], lambda size: size, 7)] == [[3, 4], [9], [1, 1]]
    assert [*group_by_size([], lambda size: size, 7)] == []
