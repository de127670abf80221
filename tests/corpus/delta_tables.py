"""Delta tables as other programs write them: actions of their log that delta-rs does not write."""

import json
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.storage import Store, deletion_vector


def actions_of(table: Path, version: int) -> list[dict]:
    log = table / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in log.read_text().splitlines()]


def write_commit(table: Path, version: int, actions: list[dict]) -> None:
    log = table / "_delta_log" / f"{version:020d}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def require(table: Path, *features: str) -> None:
    """Give the first commit of a table the reader features."""
    named = {"readerFeatures": [*features], "writerFeatures": [*features]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **named}
    commit = [{**action, "protocol": protocol} if "protocol" in action else action for action in actions_of(table, 0)]
    write_commit(table, 0, commit)


def delete_rows(table: Path, version: int, rows: dict[str, list[int]], *, inline: bool = True) -> None:
    """Commit deletion vectors by path of the file, as Spark does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion_vector, "_INLINE_BYTES", 256 if inline else 0)
        numbers = {path: np.array(some, np.uint32) for path, some in rows.items()}
        vectors = deletion_vector.save_vectors(Store(str(table)), numbers)
    adds = {one["add"]["path"]: one["add"] for n in range(version) for one in actions_of(table, n) if "add" in one}
    removed = [{"remove": {**adds[path], "deletionTimestamp": 1, "dataChange": True}} for path in rows]
    added = [{"add": {**adds[path], "deletionVector": vector.to_delta()}} for path, vector in vectors.items()]
    write_commit(table, version, [*removed, *added])


def rename_columns(table: Path, names: dict[str, tuple[str, int]], mode: str) -> None:
    """Give the columns of the first commit other names in the table: (name, number) by name in the files."""
    require(table, "columnMapping")
    actions = actions_of(table, 0)
    (meta,) = (action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(meta["schemaString"])
    nested = [field for outer in schema["fields"] if outer["name"] == "c4" for field in outer["type"]["fields"]]
    for field in (*schema["fields"], *nested):
        inside = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        field["name"], number = names[inside]
        mapping = {"physicalName": inside, "id": number}
        field["metadata"] = {f"delta.columnMapping.{key}": value for key, value in mapping.items()}
    meta["schemaString"] = json.dumps(schema)
    meta["partitionColumns"] = [names[name][0] if name in names else name for name in meta["partitionColumns"]]
    meta["configuration"] = {"delta.columnMapping.mode": mode}
    write_commit(table, 0, actions)
