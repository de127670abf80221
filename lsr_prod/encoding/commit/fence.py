"""Fencing: every attempt at a plan takes the next epoch, and only the newest may commit.

Two live attempts are a normal event (a lost driver that is not dead, a job submitted twice). The check before a commit
stops the older one early; that nothing doubles in the gap after the check is the work of the table's app transaction.
"""

import datetime as dt
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.storage import Store

__all__ = ["Epoch", "take_epoch"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """An attempt at a plan.

    Attributes:
        store: the sparse table's folder.
        plan: digest of the plan.
        number: 1, 2, 3 …
    """

    store: Store
    plan: str
    number: int

    def began(self) -> float:
        """When the attempt began, seconds since 1970 by the clock of the store."""
        entry = self.store.entry(_name(self.plan, self.number))
        if entry is None:
            raise CommitError(f"{self.store.uri} has lost the epoch of this attempt; run the job again")
        return entry.modified

    def check(self) -> None:
        """Go on only while this is the newest attempt.

        Raises:
            FencedError: a newer attempt has begun.
        """
        newest = _newest(self.store, self.plan)
        if newest > self.number:
            raise FencedError(
                f"attempt {newest} of plan {self.plan[:12]} has taken over from attempt {self.number}; "
                "let it finish, this one commits nothing more"
            )


def take_epoch(store: Store, plan: str, sources: Sequence[str]) -> Epoch:
    """Create the next epoch of a plan.

    Args:
        store: the sparse table's folder.
        plan: digest of the plan.
        sources: where this attempt reads the corpus; recorded for people.
    """
    record = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "sources": list(sources),
    }
    while True:
        number = _newest(store, plan) + 1
        if store.put_new(_name(plan, number), canonical_json(record) + b"\n"):
            return Epoch(store, plan, number)


def _newest(store: Store, plan: str) -> int:
    stems = [name.rpartition("/")[2].removesuffix(".json") for name in store.names(_folder(plan))]
    return max((int(stem) for stem in stems if stem.isdigit()), default=0)


def _name(plan: str, number: int) -> str:
    return f"{_folder(plan)}/{number:06d}.json"


def _folder(plan: str) -> str:
    return f"{PROTOCOL_FOLDER}/epochs/{plan}"
