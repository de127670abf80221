"""Log of the plain Parquet sink: commit numbers, checkpoints and damaged files."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError, FormatVersionError, StorageError
from lsr_prod.storage import Store
from lsr_prod.tables import Part, create_table, open_table
from lsr_prod.tables.parquet import CHECKPOINT_EVERY
from lsr_prod.tables.schema import schema_from_json, schema_to_json

SCHEMA = pa.schema([pa.field("doc_id", pa.string(), nullable=False), pa.field("bucket", pa.int32(), nullable=False)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path))
    create_table(store, "parquet", SCHEMA, ["bucket"], {"a": "1"})
    return store


def commit(store: Store, number: int, removes: tuple[str, ...] = ()) -> None:
    part = Part(f"bucket=0/{number}.parquet", 10, number, "{}")
    open_table(store).commit([(part, {"bucket": "0"})], removes, app=f"p{number % 3}", version=number, epoch=1)


def test_versions_are_equal_with_and_without_checkpoints(store: Store, tmp_path: Path):
    count = 2 * CHECKPOINT_EVERY + 3
    for number in range(1, count + 1):
        commit(store, number, (f"bucket=0/{number - 2}.parquet",) if number % 3 == 0 else ())
    checkpoints = sorted((tmp_path / "_manifest").glob("*.checkpoint.parquet"))
    assert [int(path.name[:20]) for path in checkpoints] == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]

    def versions() -> list[tuple]:
        tables = [open_table(store, version) for version in range(count + 1)]
        apps = ("p0", "p1", "p2", "p9")
        return [
            (table.version, table.files(), table.properties, [table.transaction_version(app) for app in apps])
            for table in tables
        ]

    before = versions()
    assert len(before[-1][1]) == count - count // 3
    for path in checkpoints:
        path.unlink()
    assert versions() == before
    assert open_table(store).version == count


def test_open_reads_only_the_checkpoint_and_later_commits(store: Store, monkeypatch: pytest.MonkeyPatch):
    for number in range(1, CHECKPOINT_EVERY + 3):
        commit(store, number)
    read, whole = [], Store.get

    def get(self: Store, name: str) -> bytes | None:
        read.append(name)
        return whole(self, name)

    monkeypatch.setattr(Store, "get", get)
    assert open_table(store).version == CHECKPOINT_EVERY + 2
    assert len(read) == 3


def test_commit_succeeds_when_the_checkpoint_cannot_be_written(store: Store, monkeypatch: pytest.MonkeyPatch):
    whole = Store.put_new

    def put_new(self: Store, name: str, data: bytes) -> bool:
        if name.endswith(".checkpoint.parquet"):
            raise StorageError("no space left on device")
        return whole(self, name, data)

    monkeypatch.setattr(Store, "put_new", put_new)
    for number in range(1, CHECKPOINT_EVERY + 2):
        commit(store, number)
    assert open_table(store).version == CHECKPOINT_EVERY + 1


def test_drafts_and_foreign_files_in_the_log_are_ignored(store: Store, tmp_path: Path):
    for name in (
        f".{1:020d}.json.{'a' * 32}.tmp",
        "1.json",
        "notes.json",
        f"{1:021d}.json",
        f"{1:020d}",
        f"{'x' * 20}.json",
    ):
        (tmp_path / "_manifest" / name).write_text("half")
    assert open_table(store).version == 0
    commit(store, 1)
    assert [entry.version for entry in open_table(store).log()] == [0, 1]


def test_open_rejects_a_damaged_log(store: Store, tmp_path: Path):
    for number in range(1, CHECKPOINT_EVERY + 2):
        commit(store, number)
    log = tmp_path / "_manifest"
    newest = log / f"{CHECKPOINT_EVERY + 1:020d}.json"
    data = newest.read_bytes()
    newest.write_bytes(data[:-9])
    with pytest.raises(ArtifactError, match="is damaged"):
        open_table(store)
    newest.write_text(json.dumps({**json.loads(data), "format": 9}))
    with pytest.raises(FormatVersionError, match="manifest format 9"):
        open_table(store)
    newest.write_bytes(data)
    (log / f"{CHECKPOINT_EVERY:020d}.checkpoint.parquet").write_bytes(b"torn")
    with pytest.raises(ArtifactError, match=r"checkpoint\.parquet is damaged .*delete it"):
        open_table(store)
    (log / f"{CHECKPOINT_EVERY:020d}.checkpoint.parquet").unlink()
    assert open_table(store).version == CHECKPOINT_EVERY + 1
    (log / f"{3:020d}.json").unlink()
    with pytest.raises(ArtifactError, match="has lost commit 3"):
        open_table(store)
    with pytest.raises(ArtifactError, match="has no version 99"):
        open_table(store, 99)


def test_schema_round_trips_through_json_and_rejects_unknown_types():
    terms = pa.list_(pa.field("element", pa.int32(), nullable=False))
    schema = pa.schema([*SCHEMA, pa.field("terms", terms, nullable=False), pa.field("key", pa.int64())])
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))).equals(schema)
    with pytest.raises(ArtifactError, match="column x is "):
        schema_to_json(pa.schema([("x", pa.timestamp("s"))]))
    with pytest.raises(ArtifactError, match="does not know"):
        schema_from_json([{"name": "x", "type": "decimal", "nullable": True}])
