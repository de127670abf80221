"""The plain Parquet sink: the same files and folders as the Delta sink, with a log of our own.

``_manifest/00000000000000000007.json`` is commit 7. It is created only if absent and never changed, so one writer gets
each number; the others read that commit before they try the next number. Every 16 commits the state is written as
``00000000000000000016.checkpoint.parquet``, so that opening a table reads one checkpoint and at most 15 commits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.errors import ArtifactError, FormatVersionError, StorageError, TableConflictError
from lsr_prod.formats.digest import canonical_json, record_bytes
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.threads import in_threads
from lsr_prod.tables.deletion_vector import VECTOR_TYPE, DeletionVector, file_of
from lsr_prod.tables.file_table import (
    TableFile,
    file_schema,
    files_with_paths,
    files_without_paths,
    to_files,
    vector_column,
)
from lsr_prod.tables.part import Part
from lsr_prod.tables.schema import schema_from_json, schema_to_json, stored_strings
from lsr_prod.tables.table import LogEntry, check_adds, check_removes

log = get_log(__name__)

MANIFEST_FORMAT = 1  # of commits without deletions: earlier releases read them
DELETIONS_FORMAT = 2
PROPERTIES_FORMAT = 3  # of commits that change properties
_FORMATS = (MANIFEST_FORMAT, DELETIONS_FORMAT, PROPERTIES_FORMAT)
LOG_FOLDER = "_manifest"
CHECKPOINT_EVERY = 16
_COMMIT, _CHECKPOINT = ".json", ".checkpoint.parquet"
_STATE = b"lsr_prod.state"
_FILES = pa.schema(
    [
        pa.field("path", pa.large_string()),
        pa.field("size", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("partition", pa.large_string()),  # JSON object: partition column -> value
    ]
)
_STATE_FILES = _FILES.append(pa.field("deleted", VECTOR_TYPE))


@dataclass(frozen=True, slots=True)
class _State:
    """State of the table after the commits up to ``version``.

    Attributes:
        version: number of the newest commit.
        head: content of commit 0, with the properties of the newest commit that changed them.
        files: one row per file, in any order (``_STATE_FILES``).
        transactions: version of the last commit of each app.
    """

    version: int
    head: Mapping[str, Any]
    files: pa.Table
    transactions: Mapping[str, int]

    def after(self, commit: Mapping[str, Any]) -> "_State":
        """Return the state after one more commit."""
        number, removes = self.version + 1, commit["removes"]
        left = files_without_paths(self.files, removes)
        if left.num_rows + len(removes) != self.files.num_rows:
            raise ArtifactError(
                f"{_name(number, _COMMIT)} removes files that the table does not have; restore {LOG_FOLDER}"
            )
        if deletions := _deletions(commit):
            left = _with_deletions(left, deletions, number)
        adds = {add["path"]: {**add, "partition": _partition_text(add["partition"])} for add in commit["adds"]}
        new = pa.Table.from_pylist([*adds.values()], schema=_STATE_FILES)
        files = pa.concat_tables([files_without_paths(left, adds), new])
        head = {**self.head, "properties": {**self.head["properties"], **commit.get("properties", {})}}
        return _State(number, head, files, {**self.transactions, commit["app"]: commit["transaction"]})


class ParquetSink:
    """A snapshot of a plain Parquet table; see ``tables.Table``."""

    sink = "parquet"

    def __init__(self, store: Store, state: _State) -> None:
        self.store = store
        self._state = state
        self.version = state.version
        self.properties: Mapping[str, str] = state.head["properties"]
        self.partition_by: tuple[str, ...] = tuple(state.head["partition_by"])
        self.schema: pa.Schema = schema_from_json(state.head["schema"])

    @cached_property
    def _files(self) -> pa.Table:
        plain = self._state.files.sort_by("path")
        # A partition has many files, and its values are stored as the text of a JSON object.
        encoded = plain["partition"].combine_chunks().dictionary_encode()
        partitions = [json.loads(text) for text in encoded.dictionary.to_pylist()]
        columns = [
            pa.array([values[name] for values in partitions], pa.large_string()).take(encoded.indices)
            for name in self.partition_by
        ]
        same = (plain[name] for name in ("path", "size", "rows", "deleted"))
        return pa.table([*same, *columns], schema=file_schema(self.partition_by))

    def file_table(self) -> pa.Table:
        """Return every file of the snapshot, sorted by path (columns: ``file_table.file_schema``)."""
        return self._files

    def files(self) -> list[TableFile]:
        """Return the rows of ``file_table`` as Python objects: about 0.5 KB per file."""
        return to_files(self._files)

    def transaction_version(self, app: str) -> int | None:
        """Return the version of the last commit of ``app``; None if it has none."""
        return self._state.transactions.get(app)

    def commit(
        self,
        adds: Sequence[tuple[Part, Mapping[str, str | None]]],
        removes: Sequence[str],
        *,
        app: str,
        version: int,
        epoch: int,
        data_change: bool = True,
        deletions: Mapping[str, DeletionVector] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """See ``tables.Table.commit``; concurrent commits of two apps that only add files both succeed."""
        changed = [*removes, *(deletions or ())]
        check_adds(self, adds)
        check_removes(self, changed)
        commit: dict[str, Any] = {
            "format": DELETIONS_FORMAT if deletions else MANIFEST_FORMAT,
            "app": app,
            "transaction": version,
            "epoch": epoch,
            "data_change": data_change,
            "adds": [
                {"path": part.path, "size": part.size, "rows": part.rows, "partition": dict(values)}
                for part, values in adds
            ],
            "removes": sorted(removes),
        }
        if deletions:
            commit["deletions"] = {path: vector.to_delta() for path, vector in deletions.items()}
        if properties:
            commit |= {"format": PROPERTIES_FORMAT, "properties": dict(properties)}
        state, data = self._state, record_bytes(commit)
        while not self.store.put_new(_name(state.version + 1, _COMMIT), data):
            other = _commit(self.store, state.version + 1)
            alone = changed or properties or other["removes"] or _deletions(other) or other.get("properties")
            if other["app"] == app or alone:
                raise TableConflictError(
                    f"{self.store.uri}: commit {state.version + 1} came first; load the table and decide again"
                )
            state = state.after(other)
        if (state.version + 1) % CHECKPOINT_EVERY == 0:
            _save_checkpoint(self.store, state.after(commit))

    def log(self) -> list[LogEntry]:
        """Return the commits of the table, oldest first."""
        entries = {entry.name: entry.modified for entry in self.store.entries(LOG_FOLDER)}
        return [LogEntry(number, entries[_name(number, _COMMIT)]) for number in _numbers(entries, _COMMIT)]

    def added_since(self, version: int) -> set[str]:
        """Return the paths that commits after ``version`` added."""
        added: set[str] = set()
        for commit in in_threads(partial(_commit, self.store), range(version + 1, self.version + 1)):
            added |= {add["path"] for add in commit["adds"]}
            added |= {path for vector in _deletions(commit).values() if (path := file_of(vector))}
        return added


def open_parquet(store: Store, version: int | None) -> ParquetSink | None:
    """Open a snapshot; None if there is no table."""
    names = store.names(LOG_FOLDER)
    commits = _numbers(names, _COMMIT)
    if not commits:
        return None
    wanted = commits[-1] if version is None else version
    if wanted not in commits:
        raise ArtifactError(f"{store.uri} has no version {wanted}; its newest version is {commits[-1]}")
    checkpoint = max((number for number in _numbers(names, _CHECKPOINT) if number <= wanted), default=None)
    state = _first_state(store) if checkpoint is None else _load_checkpoint(store, checkpoint)
    for number in range(state.version + 1, wanted + 1):
        state = state.after(_commit(store, number))
    return ParquetSink(store, state)


def create_parquet(store: Store, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create an empty table if there is none."""
    head = {
        "format": MANIFEST_FORMAT,
        "properties": dict(properties),
        "partition_by": list(partition_by),
        "schema": schema_to_json(schema),
    }
    store.put_new(_name(0, _COMMIT), record_bytes(head))


def _name(number: int, ending: str) -> str:
    return f"{LOG_FOLDER}/{number:020d}{ending}"


def _numbers(names: Sequence[str] | Mapping[str, float], ending: str) -> list[int]:
    """Return the numbers of the names ``<20 digits><ending>``, in order; drafts and foreign files are ignored."""
    stems = [name.removeprefix(f"{LOG_FOLDER}/").removesuffix(ending) for name in names if name.endswith(ending)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def _commit(store: Store, number: int) -> dict[str, Any]:
    data = store.get(_name(number, _COMMIT))
    if data is None:
        raise ArtifactError(f"{store.uri} has lost commit {number}; restore {_name(number, _COMMIT)}")
    try:
        commit: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"{store.uri}/{_name(number, _COMMIT)} is damaged ({error}); restore it") from error
    _check_format(store, commit.get("format"))
    return commit


def _check_format(store: Store, found: object) -> None:
    if found not in _FORMATS:
        raise FormatVersionError(
            f"{store.uri} has manifest format {found}; this release reads {', '.join(map(str, _FORMATS))}"
        )


def _deletions(commit: Mapping[str, Any]) -> dict[str, DeletionVector]:
    return {path: DeletionVector.from_delta(fields) for path, fields in commit.get("deletions", {}).items()}


def _with_deletions(files: pa.Table, deletions: Mapping[str, DeletionVector], number: int) -> pa.Table:
    kept = files_without_paths(files, deletions)
    cut = files_with_paths(files, deletions)
    if cut.num_rows != len(deletions):
        raise ArtifactError(
            f"{_name(number, _COMMIT)} deletes rows of files that the table does not have; restore {LOG_FOLDER}"
        )
    return pa.concat_tables(
        [kept, cut.drop(["deleted"]).append_column("deleted", vector_column(cut["path"], deletions))]
    )


def _first_state(store: Store) -> _State:
    return _State(0, _commit(store, 0), _STATE_FILES.empty_table(), {})


def _partition_text(partition: Mapping[str, str | None]) -> str:
    return canonical_json(dict(partition)).decode()


def _save_checkpoint(store: Store, state: _State) -> None:
    kept = {"version": state.version, "head": state.head, "transactions": dict(state.transactions)}
    has_deletions = state.files["deleted"].null_count < state.files.num_rows
    files = _STATE_FILES if has_deletions else _FILES
    if has_deletions:
        kept["format"] = DELETIONS_FORMAT
    schema = stored_strings(files).with_metadata({_STATE: canonical_json(kept)})
    buffer = BytesIO()
    pq.write_table(state.files.select(files.names).cast(schema), buffer, compression="zstd")
    try:
        store.put_new(_name(state.version, _CHECKPOINT), buffer.getvalue())
    except StorageError as error:
        # The commit is valid without the checkpoint: opening the table reads more commits until the next checkpoint.
        log.warning("checkpoint not written", extra={"fields": {"version": state.version, "error": str(error)}})


def _load_checkpoint(store: Store, number: int) -> _State:
    data = store.get(_name(number, _CHECKPOINT))
    try:
        table = pq.read_table(BytesIO(data or b""))
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{store.uri}/{_name(number, _CHECKPOINT)} is damaged ({error}); delete it") from error
    kept = json.loads(table.schema.metadata[_STATE])
    _check_format(store, kept.get("format", MANIFEST_FORMAT))
    if "deleted" not in table.column_names:
        table = table.append_column("deleted", pa.nulls(table.num_rows, VECTOR_TYPE))
    return _State(kept["version"], kept["head"], table.cast(_STATE_FILES), kept["transactions"])
