"""Links from a plan to the plan that follows it, created only if absent.

A plan is followed when it is finished, or when it is given up: a plan without a committed wave is superseded, one with
some is abandoned on request. A link to the successor of an unfinished plan names the number of waves that the plan has
committed. It is valid only as long as that number is right: a plan that commits another wave at the same moment makes
the link invalid, and a plan with a valid link commits no further wave (``check_not_followed``).

Of several valid links of a plan the newest counts. A shortcut is a further link of the first plan to a later plan of
the chain (``link_shortcut``), so that finding the newest plan reads few links, and plans between can be deleted.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.encoding.plans.saved import PLANS_FOLDER, plan_objects, record_name
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.storage import Store

SUCCESSORS_FOLDER = f"{PROTOCOL_FOLDER}/successors"

WavesDone = Callable[[str], int]
"""Returns the number of committed waves of a plan."""


@dataclass(frozen=True, slots=True)
class PlanLink:
    """A link.

    Attributes:
        name: of its object.
        plan: digest of the successor.
        waves: committed waves of the unfinished plan that it follows; None: that plan is finished.
    """

    name: str
    plan: str
    waves: int | None


def link_successor(table: Store, plan: Plan, waves_done: WavesDone) -> None:
    """Make a plan the successor of its base, unless it is already."""
    base, waves = plan.base, plan.header.base_waves
    assert base is not None
    record = record_bytes({"plan": plan.digest} if waves is None else {"plan": plan.digest, "waves": waves})
    while True:
        done, names = waves_done(base), _names(table, base)
        following = _newest(_valid(table, names, done))
        if following not in (None, plan.digest):
            raise CommitError(
                f"plan {following[:12]} of another run, which read another state of the source, already follows plan "
                f"{base[:12]} in {table.uri}; let that run finish, then run this one again"
            )
        if waves not in (None, done):
            raise CommitError(
                f"plan {base[:12]} in {table.uri} has committed {done} waves, but {waves} when this run began: another "
                "run continues it; let that run finish, then run this one again"
            )
        _check_saved(table, plan)  # after the links were read: those of a plan are deleted after its record
        if following is not None:
            return
        table.put_new(_next_name(base, names), record)


def link_shortcut(table: Store, first: str, plan: str, waves: int | None) -> None:
    """Link the first plan of a chain to a later one."""
    record = record_bytes({"plan": plan} if waves is None else {"plan": plan, "waves": waves})
    table.put_new(_next_name(first, _names(table, first)), record)  # if another process was faster: the next time


def successor_of(table: Store, digest: str, waves_done: WavesDone) -> str | None:
    """Return the digest of the plan that follows a plan, or None."""
    return _newest(valid_links(table, digest, waves_done))


def valid_links(table: Store, digest: str, waves_done: WavesDone) -> Iterator[PlanLink]:
    """Yield the valid links of a plan, newest first; only the first plan of a chain has several."""
    if names := _names(table, digest):
        yield from _valid(table, names, waves_done(digest))


def check_not_followed(table: Store, plan: str, waves: int) -> None:
    """Check that a plan may commit its next wave."""
    following = _newest(_valid(table, _names(table, plan), waves))
    if following is not None:
        raise FencedError(
            f"plan {plan[:12]} was given up: plan {following[:12]} of another run follows it; this attempt stops; let "
            "the newer run finish"
        )


def _valid(table: Store, names: Sequence[str], waves: int) -> Iterator[PlanLink]:
    for name in reversed(names):
        link = _read(table, name)
        if link.waves is None or link.waves == waves:
            yield link


def _newest(links: Iterator[PlanLink]) -> str | None:
    return next((link.plan for link in links), None)


def _read(table: Store, name: str) -> PlanLink:
    data = table.get(name)
    if data is None:
        raise CommitError(f"{table.uri}/{name} was deleted during the run; run the job again")
    record = json.loads(data)
    return PlanLink(name, str(record["plan"]), record.get("waves"))


def _check_saved(table: Store, plan: Plan) -> None:
    assert plan.base is not None
    missing = {*plan_objects(plan.digest), record_name(plan.base)} - {*table.names(PLANS_FOLDER)}
    if missing:
        raise CommitError(
            f"{table.uri}/{min(missing)} was deleted during the run: this run stalled for longer than "
            "maintain.retention_hours; run the job again"
        )


def _names(table: Store, base: str) -> list[str]:
    """Return the links of a plan, oldest first."""
    return [name for name in table.names(_folder(base)) if name.endswith(".json")]


def _next_name(base: str, names: Sequence[str]) -> str:
    """Return a name after those of all links; the oldest of them may have been deleted."""
    newest = names[-1].rpartition("/")[2].removesuffix(".json") if names else "0"
    return f"{_folder(base)}/{int(newest) + 1:06d}.json"


def _folder(base: str) -> str:
    return f"{SUCCESSORS_FOLDER}/{base}"
