"""Links from a plan to the plan that follows it, created only if absent.

A plan is followed when it is finished, or when it is given up: a plan without a committed wave is superseded, one with
some is abandoned on request. A link to the successor of an unfinished plan names the number of waves that the plan has
committed. It is valid only as long as that number is right: a plan that commits another wave at the same moment makes
the link invalid, and a plan with a valid link commits no further wave (``check_not_followed``).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.storage import Store

__all__ = ["check_not_followed", "link_successor", "successor_of"]

WavesDone = Callable[[str], int]
"""Returns the number of committed waves of a plan."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A link: the successor, and the committed waves of the unfinished plan that it follows."""

    plan: str
    waves: int | None


def link_successor(table: Store, plan: Plan, waves_done: WavesDone) -> None:
    """Make a plan the successor of its base, unless it is already.

    Args:
        table: the sparse table's folder.
        plan: not the first plan of the table.
        waves_done: of the newest snapshot.

    Raises:
        CommitError: another plan follows the base, or the base has committed a wave since the plan was made.
    """
    base, waves = plan.base, plan.header.base_waves
    assert base is not None
    record = record_bytes({"plan": plan.digest} if waves is None else {"plan": plan.digest, "waves": waves})
    while True:
        done, number = waves_done(base), len(_names(table, base)) + 1
        following = _valid(table, base, done)
        if following == plan.digest:
            return
        if following is not None:
            raise CommitError(
                f"plan {following[:12]} of another run, which read another state of the source, already follows plan "
                f"{base[:12]} in {table.uri}; let that run finish, then run this one again"
            )
        if waves is not None and done != waves:
            raise CommitError(
                f"plan {base[:12]} in {table.uri} has committed {done} waves, but {waves} when this run began: another "
                "run continues it; let that run finish, then run this one again"
            )
        table.put_new(f"{_folder(base)}/{number:06d}.json", record)


def successor_of(table: Store, digest: str, waves_done: WavesDone) -> str | None:
    """Return the digest of the plan that follows a plan, or None."""
    return _valid(table, digest, waves_done(digest)) if _names(table, digest) else None


def check_not_followed(table: Store, plan: str, waves: int) -> None:
    """Check that a plan may commit its next wave.

    Args:
        table: the sparse table's folder.
        plan: digest of the plan.
        waves: its committed waves in the snapshot that the commit is based on.

    Raises:
        FencedError: another plan follows it.
    """
    following = _valid(table, plan, waves)
    if following is not None:
        raise FencedError(
            f"plan {plan[:12]} was given up: plan {following[:12]} of another run follows it; this attempt stops; let "
            "the newer run finish"
        )


def _valid(table: Store, base: str, waves: int) -> str | None:
    links = (_read(table, name) for name in reversed(_names(table, base)))
    return next((link.plan for link in links if link.waves is None or link.waves == waves), None)


def _read(table: Store, name: str) -> _Link:
    data = table.get(name)
    if data is None:
        raise CommitError(f"{table.uri}/{name} was deleted during the run; run the job again")
    record = json.loads(data)
    return _Link(str(record["plan"]), record.get("waves"))


def _names(table: Store, base: str) -> list[str]:
    """Return the links of a plan, oldest first; earlier releases wrote a single one without a number."""
    single = f"{_folder(base)}.json"
    numbered = [name for name in table.names(_folder(base)) if name.endswith(".json")]
    return [*([single] if table.size(single) is not None else []), *numbered]


def _folder(base: str) -> str:
    return f"{PROTOCOL_FOLDER}/successors/{base}"
