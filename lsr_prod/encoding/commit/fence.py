"""Fencing: every attempt at a plan takes the next epoch, and only the newest attempt may commit.

Two running attempts are normal (an unreachable driver that still runs, a job submitted twice). The check before a
commit stops the older attempt early; between check and commit the app transaction of the table prevents duplicates.
"""

import datetime as dt
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import parsing, record_bytes

EPOCHS_FOLDER = f"{PROTOCOL_FOLDER}/epochs"


@dataclass(frozen=True, slots=True)
class Epoch:
    """Number of an attempt at a plan."""

    store: Store  # the sparse table's folder
    plan: str  # digest of the plan
    number: int  # 1, 2, 3 …

    def began(self) -> float:
        """Return the start of the attempt, in seconds since 1970 by the clock of the store."""
        entry = self.store.entry(_name(self.plan, self.number))
        if entry is None:
            self.check()
            raise CommitError(f"the epoch of this attempt was deleted from {self.store.uri}; run the job again")
        return entry.modified

    def check(self) -> None:
        """Check that this is the newest attempt."""
        numbers = _numbers(self.store, self.plan)
        newest = max(numbers, default=0)
        if newest > self.number:
            raise FencedError(
                f"attempt {newest} of plan {self.plan[:12]} has taken over from attempt {self.number}; "
                "this attempt stops; let the newer one finish"
            )
        if self.number not in numbers:
            raise FencedError(
                f"the record of attempt {self.number} of plan {self.plan[:12]} was deleted from {self.store.uri}; "
                "this attempt stops; run the job again"
            )


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of an attempt at a plan."""

    number: int  # its epoch
    host: str  # host name of its driver
    pid: int  # process id of its driver
    started_at: str  # UTC, ISO 8601, by the clock of its driver
    began: float  # start, in seconds since 1970 by the clock of the store


def newest_attempt(store: Store, plan: str) -> Attempt | None:
    """Return the newest attempt at a plan; None if there was none."""
    number = _newest(store, plan)
    name = _name(plan, number)
    entry, data = (store.entry(name), store.get(name)) if number else (None, None)
    if entry is None or data is None:
        return None
    with parsing(f"{store.uri}/{name} is damaged", "delete it"):
        record = json.loads(data)
        attempt = Attempt(number, str(record["host"]), int(record["pid"]), str(record["started_at"]), entry.modified)
        if attempt.pid <= 0:
            raise ValueError(f"its process id is {attempt.pid}")
    return attempt


def take_epoch(store: Store, plan: str, sources: Sequence[str]) -> Epoch:
    """Create the next epoch of a plan."""
    record = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "sources": list(sources),
    }
    while True:
        number = _newest(store, plan) + 1
        if store.put_new(_name(plan, number), record_bytes(record)):
            return Epoch(store, plan, number)


def _newest(store: Store, plan: str) -> int:
    return max(_numbers(store, plan), default=0)


def _numbers(store: Store, plan: str) -> set[int]:
    stems = [name.rpartition("/")[2].removesuffix(".json") for name in store.names(_folder(plan))]
    return {int(stem) for stem in stems if stem.isdigit()}


def _name(plan: str, number: int) -> str:
    return f"{_folder(plan)}/{number:06d}.json"


def _folder(plan: str) -> str:
    return f"{EPOCHS_FOLDER}/{plan}"
