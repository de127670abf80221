import multiprocessing
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsr_prod.training import process_group as groups
from lsr_prod.training.process_group import leave_process_group, process_group


def _member(rank: int, world: int, meeting: "Queue[Any]", answers: "Queue[Any]") -> None:
    def share(own: tuple[str, int] | None) -> tuple[str, int]:
        if own is None:
            return meeting.get(timeout=60)
        for _ in range(world - 1):
            meeting.put(own)
        return own

    with process_group(rank, world, use_gpu=False, address="127.0.0.1", share=share) as group:
        total = torch.tensor(float(group.rank + 1))
        dist.all_reduce(total)
        sockets = psutil.Process().net_connections("tcp")
        listening = {found.laddr.ip for found in sockets if found.status == psutil.CONN_LISTEN}
    answers.put((rank, float(total), sorted(listening), dist.is_initialized()))


def test_workers_listen_only_on_given_address() -> None:
    context = multiprocessing.get_context("forkserver")
    meeting, answers = context.Queue(), context.Queue()
    members = [context.Process(target=_member, args=(rank, 3, meeting, answers)) for rank in range(3)]
    for member in members:
        member.start()
    found = sorted(answers.get(timeout=120) for _ in members)
    for member in members:
        member.join(30)
    assert [answer[:2] for answer in found] == [(0, 6.0), (1, 6.0), (2, 6.0)]
    assert {address for answer in found for address in answer[2]} == {"127.0.0.1"}
    assert not any(answer[3] for answer in found)


def test_single_worker_opens_no_socket() -> None:
    def share(_: tuple[str, int] | None) -> tuple[str, int]:
        raise AssertionError("there is no one to meet")

    with process_group(0, 1, use_gpu=False, address="127.0.0.1", share=share) as group:
        assert (group.rank, group.world, group.device.type) == (0, 1, "cpu")
        assert not dist.is_initialized()


def test_group_outlives_its_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model of DDP that is the last owner of a group waits for a thread that may wait for the model's thread."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    group = dist.group.WORLD
    leave_process_group()
    assert not dist.is_initialized()
    del model
    assert any(kept is group for kept in groups._LEFT)


def test_process_group_rejects_address_of_other_machine() -> None:
    with (
        pytest.raises(OSError, match="has the address"),
        process_group(0, 2, use_gpu=False, address="203.0.113.9", share=lambda own: own or ("", 0)),
    ):
        pass
