"""The JSON files of the log of a Delta table, as far as delta-rs does not read them for us."""

import json
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store

LOG_FOLDER = "_delta_log"


def commit_name(version: int) -> str:
    """Return the path of the commit of a version inside the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def is_commit(name: str) -> bool:
    """Return whether a file name of the log folder is that of a commit."""
    return len(name) == 25 and name[:20].isdigit() and name.endswith(".json")


def read_actions(store: Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    name = commit_name(version)
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri} has lost the log of version {version}; restore {name}")
    try:
        return [json.loads(line) for line in data.splitlines() if line]
    except ValueError as error:
        raise ArtifactError(f"{store.uri}/{name} is damaged ({error}); restore it") from error
