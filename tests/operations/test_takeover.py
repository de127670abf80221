"""Waiting for an attempt of another process."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.operations import status
from lsr_prod.operations.status import wait_for_other_attempts
from tests.operations.test_status import hold, tables


def skewed() -> SimpleNamespace:
    """Return a clock two hours ahead of that of the store."""
    return SimpleNamespace(time=lambda: time.time() + 7200, monotonic=time.monotonic, sleep=time.sleep)


@pytest.mark.parametrize("is_skewed", [False, True])
def test_wait_ends_with_the_process_of_the_newest_attempt(
    is_skewed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "time", skewed() if is_skewed else time)
    table, _, digest = tables(str(tmp_path))
    take_epoch(table, digest, ())
    wait_for_other_attempts(table)  # the attempt of this process is no reason to wait
    with hold(table, digest) as holder:
        waiting = threading.Thread(target=wait_for_other_attempts, args=(table,), kwargs={"poll_s": 0.01})
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        holder.kill()
        holder.wait()
        waiting.join(20)
        assert not waiting.is_alive()
