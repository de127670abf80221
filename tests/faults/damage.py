"""Truncate or delete parts and deletion vectors that are not committed yet: a power failure, a wrong clean-up."""

import random
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.live_rows import vector_files
from lsr_prod.storage import Store
from tests.faults.protocol import Job
from tests.faults.snapshots import visible

__all__ = ["Damaged", "clear", "remove", "tear"]

_WRITTEN = re.compile(r"(^|/)(part-.*\.parquet|deletion_vector_.*\.bin)$")


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged part.

    Attributes:
        store: folder of its table.
        name: path of the part.
        whose: ``table`` or ``quarantine``.
    """

    store: Store
    name: str
    whose: str

    def committed(self) -> bool:
        """Return whether the newest snapshot names it; a leftover of an earlier attempt may stay damaged."""
        return self.name in _committed(self.store)


def tear(job: Job, rng: random.Random, skip: Collection[str] = ()) -> Damaged | None:
    """Truncate a part, empty it, or overwrite its end with zeros; return None if there is no part.

    Args:
        job: of the tables.
        rng: of the choice.
        skip: paths of parts that are left as they are.
    """
    found = _pick(job, rng, skip)
    if found is None:
        return None
    store, name = found
    data = store.get(name) or b""
    cut = rng.randrange(1, len(data))
    _overwrite(store, name, rng.choice([data[:cut], b"", data[:cut] + bytes(len(data) - cut)]))
    return Damaged(store, name, _whose(job, store))


def remove(job: Job, rng: random.Random, skip: Collection[str] = ()) -> Damaged | None:
    """Delete a part; see ``tear``."""
    found = _pick(job, rng, skip)
    if found is None:
        return None
    store, name = found
    if "://" in store.uri:
        store.delete(name)
    else:
        (Path(store.uri) / name).unlink()
    return Damaged(store, name, _whose(job, store))


def clear(job: Job) -> None:
    """Delete the tables of a finished world."""
    for store in job.stores:
        shutil.rmtree(store.uri, ignore_errors=True)


def _pick(job: Job, rng: random.Random, skip: Collection[str]) -> tuple[Store, str] | None:
    found = [
        (store, name)
        for store in job.stores
        for name in sorted({name for name in store.names() if _WRITTEN.search(name)} - _committed(store) - {*skip})
    ]
    return rng.choice(found) if found else None


def _committed(store: Store) -> set[str]:
    table = open_table(store)
    return visible(store) | (vector_files(table.file_table()) if table else set())


def _whose(job: Job, store: Store) -> str:
    return "table" if store == job.stores[0] else "quarantine"


def _overwrite(store: Store, name: str, data: bytes) -> None:
    if "://" not in store.uri:
        (Path(store.uri) / name).write_bytes(data)
        return
    store.delete(name)
    store.put_new(name, data)
