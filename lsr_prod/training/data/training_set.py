"""The training set: tokenized rows in Arrow files that are mapped into memory, read by row number.

::

    sets/<digest>.json                    names every file with its sha256 and size; written last
    sets/<digest>/set.json                inputs, rows, quarantined rows, the parts in order
    sets/<digest>/part-<n>-<sha>.arrow    rows: query, documents, scores, length, keys of query and positive
    sets/<digest>/positives-<first key>-<sha>.arrow    pairs of keys of queries with several positives
    sets/<digest>.parts/<n>.json          receipts of parts, with which an interrupted preparation resumes
    sets/<digest>.quarantine/             bad rows, in the columns of every quarantine

A row is found by two look-ups of offsets in the mapped file, so that processes share one copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.storage import Store, artifacts
from lsr_prod.storage.formats.digests import FileDigest, digest_json, parsing, read_record
from lsr_prod.training.data.known_positives import KEY_COLUMNS, KeyRange, KnownTable

SET_FILE = "set.json"
SET_FORMAT = 3
_REMEDY = "prepare the training set again"


def set_name(digest: str) -> str:
    """Return the path of a training set in a work store."""
    return f"sets/{digest}"


def part_schema(*, scores: bool) -> pa.Schema:
    """Return the columns of a part; token ids of a text include its special tokens."""
    fields = [
        pa.field("query", pa.list_(pa.int32()), nullable=False),
        pa.field("documents", pa.list_(pa.list_(pa.int32())), nullable=False),
        pa.field("length", pa.int32(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in KEY_COLUMNS),
    ]
    return pa.schema([*fields, pa.field("scores", pa.list_(pa.float32()), nullable=False)] if scores else fields)


class Example(NamedTuple):
    """A row of a training set."""

    query: np.typing.NDArray[np.int32]  # int32 token ids; empty in a set of plain texts
    # int32 token ids of each document, the positive first; the only text in a set of plain texts
    documents: tuple[np.typing.NDArray[np.int32], ...]
    scores: np.typing.NDArray[np.float32] | None  # float32, of a teacher, one per document; None if the rows have none


@dataclass(frozen=True, slots=True)
class TrainingPart:
    """Result of one read task."""

    file: FileDigest | None  # the Arrow file, named inside the set; None without a good row
    batches: tuple[int, ...]  # rows of each of its record batches
    good: int  # good rows of the source; a packed row holds parts of several
    quarantined: dict[str, int]  # bad rows by reason

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TrainingPart":
        """Parse the JSON form of ``asdict``."""
        file = value["file"] and FileDigest.from_json(value["file"])
        return cls(file, tuple(value["batches"]), int(value["good"]), dict(value["quarantined"]))


@dataclass(frozen=True, slots=True)
class SetRecord:
    """Content of ``set.json``."""

    made_from: dict[str, Any]  # everything that determines the rows; its digest names the set
    parts: tuple[TrainingPart, ...]  # parts in row order
    keys: tuple[KeyRange, ...] = ()  # counts and known positives by range of keys

    @property
    def digest(self) -> str:
        """sha256 (hex) that names the set."""
        return digest_json(self.made_from)

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {"format": SET_FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SetRecord":
        """Read what ``to_json`` wrote."""
        if value["format"] != SET_FORMAT:
            raise FormatVersionError(
                f"a training set has format {value['format']}, this release reads {SET_FORMAT}; {_REMEDY}"
            )
        parts, keys = map(TrainingPart.from_json, value["parts"]), map(KeyRange.from_json, value["keys"])
        return cls(dict(value["made_from"]), tuple(parts), tuple(keys))


class TrainingSet:
    """Rows by number. Safe to share between threads; unpickling opens the set again."""

    def __init__(self, store: Store, folder: Path, record: SetRecord) -> None:
        """Read from a verified folder; use ``open``."""
        self._store, self._record = store, record
        self._places = [
            (folder / part.file.path, batch)
            for part in record.parts
            if part.file is not None
            for batch in range(len(part.batches))
        ]
        self._starts = np.cumsum([0, *[rows for part in record.parts for rows in part.batches]]).astype(np.int64)
        self.rows = int(self._starts[-1])
        self._readers: dict[Path, pa.ipc.RecordBatchFileReader] = {}
        self._batches: dict[int, _Batch] = {}
        self._lengths: np.typing.NDArray[np.int32] | None = None
        self._known_files = [folder / one.file.path for one in record.keys if one.file is not None]
        self._known: KnownTable | None = None

    @classmethod
    def open(cls, store: Store, digest: str, *, verify: bool = True) -> "TrainingSet":
        """Open a prepared training set."""
        folder = artifacts.fetch_artifact(store, set_name(digest), verify=verify)
        record = read_record(folder / SET_FILE, SetRecord.from_json, _REMEDY)
        if record.digest != digest:
            raise ArtifactError(f"{folder / SET_FILE} describes another set, {record.digest}; {_REMEDY}")
        return cls(store, folder, record)

    def __reduce__(self) -> tuple[Callable[..., "TrainingSet"], tuple[Store, str]]:
        """Pickle store and digest only; the bytes were verified when the set was first opened."""
        return _reopened, (self._store, self._record.digest)

    @property
    def lengths(self) -> np.typing.NDArray[np.int32]:
        """Tokens of the longest text of each row, int32 [rows]; read at the first use and kept in memory."""
        if self._lengths is None:
            parts = [self._batch(batch).lengths for batch in range(len(self._places))]
            self._lengths = np.concatenate([*parts, np.empty(0, np.int32)])
        return self._lengths

    def keys(
        self, rows: np.typing.NDArray[np.int64]
    ) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
        """Return the keys of the queries and of the positives of rows, two arrays int64 [n]."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        queries, positives = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        order = np.argsort(batches, kind="stable")
        numbers, firsts = np.unique(batches[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, firsts)[1:], strict=True):
            batch, inside = self._batch(number), rows[places] - self._starts[number]
            queries[places], positives[places] = batch.query_keys[inside], batch.positive_keys[inside]
        return queries, positives

    def known_positives(
        self, queries: np.typing.NDArray[np.int64]
    ) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
        """Return the positives that the rows of the set give to queries; see ``KnownTable.look_up``."""
        if self._known is None:
            with parsing("the known positives do not open", _REMEDY):
                self._known = KnownTable(self._known_files)
        return self._known.look_up(queries)

    def examples(self, rows: np.typing.NDArray[np.int64]) -> list[Example]:
        """Return the given rows; their arrays are read-only views of the mapped files."""
        if len(rows) and (rows.min() < 0 or rows.max() >= self.rows):
            raise IndexError(f"the set has rows 0 to {self.rows - 1}, not {rows.min()} to {rows.max()}")
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        inside = rows - self._starts[batches]
        return [self._batch(batch).example(row) for batch, row in zip(batches.tolist(), inside.tolist(), strict=True)]

    def _batch(self, number: int) -> "_Batch":
        if (found := self._batches.get(number)) is not None:
            return found
        path, place = self._places[number]
        with parsing(f"{path} does not open", _REMEDY):
            if path not in self._readers:
                self._readers[path] = pa.ipc.open_file(pa.memory_map(str(path)))
            batch = _Batch(self._readers[path].get_batch(place))
        if len(batch.lengths) != self._starts[number + 1] - self._starts[number]:
            raise ArtifactError(f"{path} has another number of rows than its record; {_REMEDY}")
        self._batches[number] = batch
        return batch


class _Batch:
    """Views of a record batch: flat values, and offsets as memoryviews, whose items are Python integers."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        documents = batch.column("documents")
        self._query, self._query_starts = _flat(batch.column("query"), np.int32)
        self._firsts = memoryview(documents.offsets.to_numpy())
        self._tokens, self._starts = _flat(documents.values, np.int32)
        self.lengths: np.typing.NDArray[np.int32] = batch.column("length").to_numpy()
        self.query_keys, self.positive_keys = (batch.column(name).to_numpy() for name in KEY_COLUMNS)
        self._scores: np.typing.NDArray[np.float32] | None = None
        if "scores" in batch.schema.names:
            self._scores, self._score_starts = _flat(batch.column("scores"), np.float32)

    def example(self, row: int) -> Example:
        starts = self._starts[self._firsts[row] : self._firsts[row + 1] + 1]
        return Example(
            query=self._query[self._query_starts[row] : self._query_starts[row + 1]],
            documents=tuple(self._tokens[first:last] for first, last in pairwise(starts)),
            scores=None
            if self._scores is None
            else self._scores[self._score_starts[row] : self._score_starts[row + 1]],
        )


def _flat(column: Any, dtype: type[np.generic]) -> tuple[np.typing.NDArray[Any], memoryview]:
    values: np.typing.NDArray[Any] = column.values.to_numpy()
    if values.dtype != dtype:
        raise pa.ArrowInvalid(f"values are {values.dtype}, not {np.dtype(dtype)}")
    return values, memoryview(column.offsets.to_numpy())


def _reopened(store: Store, digest: str) -> TrainingSet:
    return TrainingSet.open(store, digest, verify=False)


def text_keys(texts: Sequence[np.typing.NDArray[np.int32]]) -> np.typing.NDArray[np.int64]:
    """Return the key of each text: 8 bytes of BLAKE2b of its token ids.

    Texts that differ only after the maximum length have the same token ids, so the model gives them the same vector.
    Among 1e8 different texts, the probability that any two have the same key is 3e-4.
    """
    digests = b"".join(blake2b(text.astype("<i4", copy=False).tobytes(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<i8").astype(np.int64)


class SampleRows:
    """Some rows in memory, in the place of a training set."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = list(examples)
        self.rows = len(self._examples)
        longest = [max(map(len, (one.query, *one.documents))) for one in self._examples]
        self.lengths: np.typing.NDArray[np.int32] = np.array(longest, np.int32)
        self._query_keys = text_keys([one.query for one in self._examples])
        self._positive_keys = text_keys([one.documents[0] for one in self._examples])

    def examples(self, rows: np.typing.NDArray[np.int64]) -> list[Example]:
        """Return rows by number."""
        return [self._examples[row] for row in rows]

    def keys(
        self, rows: np.typing.NDArray[np.int64]
    ) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
        """Return the keys of the queries and of the positives of rows, two arrays int64 [n]."""
        return self._query_keys[rows], self._positive_keys[rows]

    def known_positives(
        self, queries: np.typing.NDArray[np.int64]
    ) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
        """Return the positives of queries among these rows, as ``TrainingSet.known_positives`` does."""
        places, rows = (queries[:, None] == self._query_keys).nonzero()
        return places, self._positive_keys[rows]
