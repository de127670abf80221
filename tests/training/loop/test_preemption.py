from dataclasses import dataclass

import torch

from lsr_prod.training.loop.worker import Preemption
from lsr_prod.training.process_group import Group
from tests.training.gloo import run_workers


@dataclass(frozen=True)
class _Announced:
    preempted_node_to_ranks: dict[str, list[int]]


def _one(answers: list[_Announced | None], every_s: float = 0.0) -> tuple[Preemption, list[_Announced | None]]:
    """A worker alone, and what is left of its answers."""
    left = list(answers)
    return Preemption(Group(0, 1, torch.device("cpu")), ask=lambda: left.pop(0), every_s=every_s), left


def test_preemption_of_machine_is_new_only_once() -> None:
    first, both = _Announced({"a": [0]}), _Announced({"a": [0], "b": [1, 2]})
    preemption, _ = _one([None, first, first, both, both, None])
    assert [preemption.is_new() for _ in range(6)] == [False, True, False, True, False, False]


def test_preemption_is_polled_only_when_due() -> None:
    preemption, left = _one([_Announced({"a": [0]})], every_s=3600)
    assert [preemption.is_new() for _ in range(50)] == [False] * 50
    assert len(left) == 1


def _worker(rank: int, steps: int) -> torch.Tensor:
    """Per step: whether the worker asked, and whether it would save. Only the second worker's time ever comes."""
    asked: list[int] = []

    def ask() -> _Announced | None:
        asked.append(1)
        return _Announced({"a": [1]}) if len(asked) > 3 else None

    every_s = 0.0 if rank == 1 else 3600.0
    preemption = Preemption(Group(rank, 3, torch.device("cpu")), ask=ask, every_s=every_s)
    rows = []
    for _ in range(steps):
        before, new = len(asked), preemption.is_new()
        rows.append([len(asked) - before, int(new)])
    return torch.tensor(rows)


def test_all_workers_poll_and_save_at_same_step() -> None:
    found = run_workers(_worker, 3, 6)
    assert all(torch.equal(one, found[0]) for one in found)
    assert found[0].tolist() == [[1, 0], [1, 0], [1, 0], [1, 1], [1, 0], [1, 0]]
