"""Waiting for an attempt of another process."""

import threading
from pathlib import Path

from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.operations.status import wait_for_other_attempts
from tests.operations.test_status import hold, tables


def test_wait_ends_with_the_process_of_the_newest_attempt(tmp_path: Path) -> None:
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
