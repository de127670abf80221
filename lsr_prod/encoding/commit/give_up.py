"""Give up an unfinished plan: make sure that no attempt at it commits another wave."""

from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.encoding.plans.saved import read_record
from lsr_prod.errors import CommitError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.tables import open_table

log = get_log(__name__)


def give_up_base(plan: Plan, table: Store, quarantine: Store) -> None:
    """Fence the unfinished plan that a plan follows; call it after the link and before the plan commits.

    An attempt at the base checks the link after it has loaded the snapshot that its commit is based on. The fence makes
    snapshots stale that it loaded before the link existed. So after the fence the number of committed waves is final.

    The run of a base without a transaction may have died before it fenced its own base, which then is fenced too.
    """
    given_up = _given_up(plan, table)
    for base, waves in reversed(given_up):  # the oldest first: a plan with a transaction has given up its base
        _fence(base, waves, table, quarantine)
    if given_up:
        base, waves = given_up[0]
        fields = {"plan": base, "waves": waves, "follows": plan.digest}
        log.warning("plan superseded" if waves == 0 else "plan abandoned", extra={"fields": fields})


def _given_up(plan: Plan, table: Store) -> list[tuple[str, int]]:
    """Return the unfinished plans to fence with their committed waves, newest first."""
    snapshot = open_table(table)
    found = []
    base, waves = plan.base, plan.header.base_waves
    while base is not None and waves is not None:
        found.append((base, waves))
        if snapshot is None or snapshot.transaction_version(base) is not None:
            break
        record = read_record(table, base)
        base, waves = (None, None) if record is None else (record.get("base"), record.get("base_waves"))
    return found


def _fence(plan: str, waves: int, table: Store, quarantine: Store) -> None:
    committer = Committer(take_epoch(table, plan, ()), table, quarantine)
    committer.fence()
    found = open_table(table)
    done = 0 if found is None else waves_done(found, plan)
    if done != waves:
        raise CommitError(
            f"plan {plan[:12]} has committed {done} waves, but {waves} when this run began: another run continues "
            "it; let that run finish, then run this one again"
        )
    committer.clear_quarantine(waves)
