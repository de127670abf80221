import platform
from pathlib import Path

import pytest
import torch

from lsr_prod_contrib.cpu_training import memory
from lsr_prod_contrib.cpu_training.memory import return_free_memory


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has malloc_trim")
def test_gaps_between_living_tensors_are_returned() -> None:
    size = 1 << 14  # 64 kB: from the heap, not a mapping of its own
    tensors = [torch.ones(size) for _ in range(2000)]
    kept = tensors[::8]
    del tensors
    before = _resident()
    return_free_memory()
    assert before - _resident() > 60e6
    assert all(bool((one == 1).all()) for one in kept)


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    memory._trim.cache_clear()
    return_free_memory()
    memory._trim.cache_clear()
