"""Parts that no commit names yet are torn or vanish, as after a power cut or a wrong clean-up."""

import random
import shutil
from pathlib import Path

from lsr_prod.storage import Store
from tests.faults.oracle import visible
from tests.faults.protocol import Job

__all__ = ["clear", "remove", "tear"]


def tear(job: Job, rng: random.Random) -> str | None:
    """Cut a part, empty it, or lose its tail to zeros. Returns whose it was, None if there is none."""
    found = _pick(job, rng)
    if found is None:
        return None
    store, name = found
    data = store.get(name) or b""
    cut = rng.randrange(1, len(data))
    _overwrite(store, name, rng.choice([data[:cut], b"", data[:cut] + bytes(len(data) - cut)]))
    return _whose(job, store)


def remove(job: Job, rng: random.Random) -> str | None:
    """Delete a part. Returns whose it was, None if there is none."""
    found = _pick(job, rng)
    if found is None:
        return None
    store, name = found
    if "://" in store.uri:
        store.delete(name)
    else:
        (Path(store.uri) / name).unlink()
    return _whose(job, store)


def clear(job: Job) -> None:
    """Delete the tables: a world is over."""
    for store in job.stores:
        shutil.rmtree(store.uri, ignore_errors=True)


def _pick(job: Job, rng: random.Random) -> tuple[Store, str] | None:
    found = [
        (store, name)
        for store in job.stores
        for name in sorted(
            {name for name in store.names() if "part-" in name and name.endswith(".parquet")} - visible(store)
        )
    ]
    return rng.choice(found) if found else None


def _whose(job: Job, store: Store) -> str:
    return "table" if store == job.stores[0] else "quarantine"


def _overwrite(store: Store, name: str, data: bytes) -> None:
    if "://" not in store.uri:
        (Path(store.uri) / name).write_bytes(data)
        return
    store.delete(name)
    store.put_new(name, data)
