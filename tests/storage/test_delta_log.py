import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.delta_log import LOG_FOLDER, deletion_vectors
from tests.corpus.delta_tables import actions_of, delete_rows, require, write_commit

NUMBER = f"{1:020d}"


def table_with_vectors(folder: Path) -> list[dict]:
    """Write a table whose two files have deleted rows since version 1; return the actions that add them."""
    write_deltalake(folder, pa.table({"n": [1, 2, 3, 4]}))
    write_deltalake(folder, pa.table({"n": [5, 6, 7]}), mode="append")
    first, second = (one["add"] for number in (0, 1) for one in actions_of(folder, number) if "add" in one)
    write_commit(folder, 0, [*actions_of(folder, 0), {"add": second}])
    require(folder, "deletionVectors", "v2Checkpoint")
    delete_rows(folder, 1, {first["path"]: [0, 2], second["path"]: [1]})
    names = ("path", "size", "deletionVector")
    return [{"add": {name: one["add"][name] for name in names}} for one in actions_of(folder, 1) if "add" in one]


def parquet(log: Path, name: str, rows: list[dict]) -> None:
    pq.write_table(pa.Table.from_pylist([{"add": None, "sidecar": None} | row for row in rows]), log / name)


def in_parts(log: Path, adds: list[dict]) -> None:
    for part, add in enumerate(adds, 1):
        parquet(log, f"{NUMBER}.checkpoint.{part:010d}.{2:010d}.parquet", [add])


def in_json(log: Path, adds: list[dict]) -> None:
    parquet(log / "_sidecars", "a.parquet", adds[:1])
    actions = [{"checkpointMetadata": {"version": 1}}, {"sidecar": {"path": "a.parquet"}}, *adds[1:]]
    text = "\n".join(json.dumps(action) for action in actions)
    (log / f"{NUMBER}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(text)


def in_parquet(log: Path, adds: list[dict]) -> None:
    for number, add in enumerate(adds):
        parquet(log / "_sidecars", f"{number}.parquet", [add])
    sidecars = [{"sidecar": {"path": f"s3://b/t/_delta_log/_sidecars/{number}.parquet"}} for number in range(len(adds))]
    parquet(log, f"{NUMBER}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", sidecars)


@pytest.mark.parametrize("write", [in_parts, in_json, in_parquet])
def test_vectors_are_read_from_checkpoints_of_every_form(tmp_path: Path, write: Callable[[Path, list[dict]], None]):
    adds, store = table_with_vectors(tmp_path), Store(str(tmp_path))
    log = tmp_path / LOG_FOLDER
    expected = deletion_vectors(store, 1)
    assert sorted(vector.rows for vector in expected.values()) == [1, 2]
    (log / "_sidecars").mkdir()
    write(log, adds)
    for number in (0, 1):
        (log / f"{number:020d}.json").unlink()
    assert deletion_vectors(store, 1) == expected
    for checkpoint in (*log.glob("_sidecars/*"), *log.glob("*.checkpoint.*")):
        checkpoint.write_bytes(b"{")
    with pytest.raises(ArtifactError, match="is damaged"):
        deletion_vectors(store, 1)


def test_checkpoint_that_lacks_a_part_is_not_read(tmp_path: Path):
    adds, store = table_with_vectors(tmp_path), Store(str(tmp_path))
    expected = deletion_vectors(store, 1)
    in_parts(tmp_path / LOG_FOLDER, adds)
    next((tmp_path / LOG_FOLDER).glob("*.checkpoint.*")).unlink()
    assert deletion_vectors(store, 1) == expected
