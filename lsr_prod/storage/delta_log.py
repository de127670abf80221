"""The log of a Delta table: its commits, and the deletion vectors of a snapshot.

delta-rs returns the deletion vectors of a snapshot as one boolean per row, but not where they are stored.
"""

import json
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import remote, stores
from lsr_prod.storage.deletion_vector import DeletionVector
from lsr_prod.storage.formats.digests import parsing

LOG_FOLDER = "_delta_log"
_SIDECARS = f"{LOG_FOLDER}/_sidecars"
# Of one file, of several parts, or of version 2, whose files of actions are sidecars.
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-fA-F-]{36})?\.(?:parquet|json)")


def commit_name(version: int) -> str:
    """Return the path of the commit of a version inside the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def is_commit(name: str) -> bool:
    """Return whether a file name of the log folder is that of a commit."""
    return len(name) == 25 and name[:20].isdigit() and name.endswith(".json")


def read_actions(store: stores.Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    name = commit_name(version)
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri} has lost the log of version {version}; restore {name}")
    return _actions(store, name, data)


def deletion_vectors(store: stores.Store, version: int) -> dict[str, DeletionVector]:
    """Return the deletion vectors of a snapshot, by path of their part.

    Reads two columns of the newest checkpoint and the commits after it.
    """
    start, saved = _newest_checkpoint([entry.name.rpartition("/")[2] for entry in store.entries(LOG_FOLDER)], version)
    found: dict[str, DeletionVector | None] = {}
    for file in saved:
        found |= _of_checkpoint(store, f"{LOG_FOLDER}/{file}")
    for changed in remote.in_threads(partial(_changed_vectors, store), range(start + 1, version + 1)):
        found |= changed
    return {path: vector for path, vector in found.items() if vector}


def _newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """Return version and files of the newest complete checkpoint up to a version; -1 and nothing if there is none."""
    found: dict[tuple[int, str], list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
            found.setdefault((int(match[1]), match[2] or name), []).append(name)
    complete = [
        (number, files) for (number, parts), files in found.items() if not parts.isdigit() or len(files) == int(parts)
    ]
    return max(complete, default=(-1, []))


def _changed_vectors(store: stores.Store, number: int) -> dict[str, DeletionVector | None]:
    """Return the deletion vectors that a commit changes, by path of their part; None: the part has none any more."""
    actions = read_actions(store, number)
    changed: dict[str, DeletionVector | None] = {one["remove"]["path"]: None for one in actions if "remove" in one}
    for add in (one["add"] for one in actions if "add" in one):
        vector = add.get("deletionVector")
        changed[add["path"]] = DeletionVector.from_delta(vector) if vector else None
    return changed


def _of_checkpoint(store: stores.Store, name: str) -> dict[str, DeletionVector]:
    """Return the deletion vectors in a file of a checkpoint, and in its sidecars."""
    if name.endswith(".json"):
        actions = _actions(store, name, store.get(name) or b"")
        adds = [one["add"] for one in actions if (one.get("add") or {}).get("deletionVector")]
        sidecars = [one["sidecar"]["path"] for one in actions if one.get("sidecar")]
    else:
        adds, sidecars = _of_parquet(store, name)
    found = {add["path"]: DeletionVector.from_delta(add["deletionVector"]) for add in adds}
    for path in sidecars:  # a path inside the folder of sidecars, or a whole URI of a file that is there
        found |= _of_checkpoint(store, f"{_SIDECARS}/{path.rpartition('/')[2]}")
    return found


def _of_parquet(store: stores.Store, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the added files with a deletion vector, and the paths of the sidecars."""
    damaged = parsing(f"{store.uri}/{name} is damaged", "restore it")
    with damaged, store.open_reader(name) as data, pq.ParquetFile(data) as file:
        leaves = (file.schema.column(number).path for number in range(len(file.schema)))
        roots = {tuple(path.split(".")[:2]) for path in leaves}
        adds, sidecars = [], []
        if ("add", "deletionVector") in roots:
            column = file.read(["add.path", "add.deletionVector"])["add"]
            adds = column.filter(pc.struct_field(column, "deletionVector").is_valid()).to_pylist()
        if ("sidecar", "path") in roots:
            sidecars = pc.struct_field(file.read(["sidecar.path"])["sidecar"], "path").drop_null().to_pylist()
        return adds, sidecars


def _actions(store: stores.Store, name: str, data: bytes) -> list[dict[str, Any]]:
    with parsing(f"{store.uri}/{name} is damaged", "restore it"):
        return [json.loads(line) for line in data.splitlines() if line]
