"""Wait for the attempt that has taken over a plan, so that two runs started at once end in the state of one."""

import os
import socket
import time

from lsr_prod.logs import get_log
from lsr_prod.operations.status import PlanStatus, table_status
from lsr_prod.storage import Store

log = get_log(__name__)

_POLL_S = 5.0


def wait_for_other_attempts(table: Store, *, poll_s: float = _POLL_S) -> None:
    """Return when no other process encodes into a table: it has finished, has ended, or has been silent for long."""
    waited: set[tuple[str, int | None]] = set()
    while running := [plan for plan in table_status(table).plans if _is_other(plan)]:
        for plan in running:
            if (plan.plan, plan.attempt) not in waited:
                waited.add((plan.plan, plan.attempt))
                fields = {"table": table.uri, "plan": plan.plan, "host": plan.host, "pid": plan.pid}
                log.info("waiting for another attempt", extra={"fields": fields})
        time.sleep(poll_s)


def _is_other(plan: PlanStatus) -> bool:
    """Return whether an attempt runs that is not of this process."""
    return plan.state == "running" and (plan.host, plan.pid) != (socket.gethostname(), os.getpid())
