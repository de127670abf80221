"""One part of a training set: slices are read, judged, tokenised and written as one Arrow file, in bounded memory."""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.rows import BadRow, show
from lsr_prod.corpus.slices import Slice
from lsr_prod.formats.digest import FileDigest, canonical_json, digest_path
from lsr_prod.storage import Store
from lsr_prod.storage.index_store import object_name
from lsr_prod.training_data.layouts import Asked, Layout, Packed, Taught, Worded, pack, query_terms, word_rows
from lsr_prod.training_data.records import read_rows
from lsr_prod.training_data.rows import TrainingRow
from lsr_prod.training_data.tokens import TokenSettings
from lsr_prod.training_data.training_set import Part, part_schema, set_name

__all__ = ["PartMaker", "quarantine_name", "receipts_name"]

_CHARACTERS = 1_000_000  # of text tokenised at once: what the tokenizer makes of it takes a hundred times the memory
_TOKENS = 4_000_000  # of a record batch
_NOTHING = np.empty(0, np.int32)


def receipts_name(digest: str) -> str:
    """Where the receipts of a set's parts lie in a work store."""
    return f"{set_name(digest)}.parts"


def quarantine_name(digest: str) -> str:
    """Where the bad rows of a set lie in a work store."""
    return f"{set_name(digest)}.quarantine"


@dataclass(frozen=True, slots=True)
class PartMaker:
    """Makes the parts of one set.

    Attributes:
        data: the section ``data``.
        tokens: decides token ids.
        needs_negative: a row without a negative is bad.
        digest: of the set.
        store: the work store.
        options: options of the object stores of sources.
        layout: what rows hold; None: token ids alone.
    """

    data: TrainingDataSettings
    tokens: TokenSettings
    needs_negative: bool
    digest: str
    store: Store
    options: dict[str, str]
    layout: Layout | None = None

    def make(self, number: int, pieces: Sequence[Slice]) -> Part:
        """Write part ``number`` of the set, its bad rows, and last its receipt. Made again, it is the same.

        Raises:
            SourceError: a file is not as it was pinned, or cannot be read for now.
            StorageError: the work store fails.
        """
        # As many tasks run as there are cores; threads of each would only be in the way of the others.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        with tempfile.TemporaryDirectory(prefix="lsr_prod-part-") as folder:
            rows, bad = Path(folder) / "rows.arrow", Path(folder) / "bad.jsonl"
            batches, quarantined = self._write(rows, bad, pieces)
            part = Part(
                file=self._put(set_name(self.digest), rows, f"part-{number:06d}", ".arrow") if batches else None,
                batches=tuple(batches),
                quarantined=quarantined,
                quarantine=self._put(quarantine_name(self.digest), bad, f"{number:06d}", ".jsonl")
                if quarantined
                else None,
            )
        return self._receipt(number, part)

    def _receipt(self, number: int, part: Part) -> Part:
        """Leave the receipt of a part; of two that make it at once, the first one's counts."""
        folder, name = self.store.child(receipts_name(self.digest)), f"{number:06d}.json"
        if folder.put_new(name, canonical_json(part.to_json())):
            return part
        earlier = folder.get(name)
        return part if earlier is None else Part.from_json(json.loads(earlier))

    def _write(self, rows: Path, bad: Path, pieces: Sequence[Slice]) -> tuple[list[int], dict[str, int]]:
        """Rows of each record batch, and bad rows by reason."""
        schema = part_schema(scores=self.data.kind == "scores")
        with ExitStack() as stack:
            quarantine = _Quarantine(stack.enter_context(bad.open("w", encoding="utf-8")))
            writer = stack.enter_context(pa.ipc.new_file(str(rows), schema))
            columns, batches = _Columns(schema), []
            for row in self._rows(pieces, quarantine):
                columns.add(row)
                if columns.tokens >= _TOKENS:
                    batches.append(columns.rows)
                    writer.write_batch(columns.take())
            if columns.rows:
                batches.append(columns.rows)
                writer.write_batch(columns.take())
        return batches, dict(sorted(quarantine.counts.items()))

    def _good(self, pieces: Sequence[Slice], quarantine: "_Quarantine") -> Iterator[tuple[str, int, TrainingRow]]:
        for piece in pieces:
            for position, row in read_rows(piece, self.data, self.options, needs_negative=self.needs_negative):
                if isinstance(row, BadRow):
                    quarantine.add(piece.file.location, position, row)
                else:
                    yield piece.file.location, position, row

    def _rows(self, pieces: Sequence[Slice], quarantine: "_Quarantine") -> Iterator["_Row"]:
        groups = _groups(self._good(pieces, quarantine))
        rows = (row for group in groups for row in self._tokenised(group, quarantine))
        if isinstance(self.layout, Packed):
            blocks = pack((row.documents[0] for row in rows), self.layout)
            return (_Row(_NOTHING, [block]) for block in blocks)
        return rows

    def _tokenised(self, group: Sequence[tuple[str, int, TrainingRow]], quarantine: "_Quarantine") -> Iterator["_Row"]:
        made = self._worded(group) if isinstance(self.layout, Worded) else self._texts(group)
        for (location, position, source), row in zip(group, made, strict=True):
            found = _unusable(source, row, self.layout)
            if found is None:
                yield row
                continue
            raw = show({"query": source.query, "documents": list(source.documents)})
            quarantine.add(location, position, BadRow(*found, None, raw))

    def _texts(self, group: Sequence[tuple[str, int, TrainingRow]]) -> Iterator["_Row"]:
        """Every text of a row as its token ids; for a teacher the text of the row once more."""
        rows = [row for _, _, row in group]
        texts = [text for row in rows for text in row.documents]
        if isinstance(self.layout, Taught):
            queries = iter(self.layout.teacher.token_ids(texts, self.layout.teacher.document))
        else:
            asked = [row.query for row in rows if row.query is not None]
            queries = iter(self._queries(asked))
        documents = iter(self.tokens.token_ids(texts, self.tokens.document))
        for row in rows:
            query = next(queries) if row.query is not None or isinstance(self.layout, Taught) else _NOTHING
            yield _Row(query, [next(documents) for _ in row.documents], row.scores)

    def _queries(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        if isinstance(self.layout, Asked):
            return query_terms(texts, self.tokens, self.layout)
        return self.tokens.token_ids(texts, self.tokens.query)

    def _worded(self, group: Sequence[tuple[str, int, TrainingRow]]) -> Iterator["_Row"]:
        assert isinstance(self.layout, Worded)
        texts = [row.documents[0] for _, _, row in group]
        for ids, words in word_rows(texts, self.tokens, self.tokens.document, self.layout):
            yield _Row(_NOTHING, [ids, words], texts=1)

    def _put(self, name: str, path: Path, stem: str, ending: str) -> FileDigest:
        sha256 = digest_path(path)
        file = FileDigest(f"{stem}-{sha256[:16]}{ending}", sha256, path.stat().st_size)
        target = self.store.child(name)
        target.put_file_new(object_name(target, file), path, sha256)
        return file


class _Row(NamedTuple):
    """A row of the set. Its length is that of its longest text, or that of its first one where the rest is no text."""

    query: npt.NDArray[np.int32]
    documents: list[npt.NDArray[np.int32]]
    scores: tuple[float, ...] | None = None
    texts: int | None = None


def _unusable(source: TrainingRow, row: _Row, layout: Layout | None) -> tuple[str, str] | None:
    """Reason and detail where a text has become nothing."""
    if isinstance(layout, Worded):
        return None if len(row.documents[1]) else ("empty_text", "none of its words is an output term")
    if (source.query is not None or isinstance(layout, Taught)) and not len(row.query):
        who = "the teacher's tokenizer" if isinstance(layout, Taught) else "the tokenizer"
        what = "output term" if isinstance(layout, Asked) else "token"
        return "empty_query", f"{who} makes no {what} of it"
    return None if all(map(len, row.documents)) else ("empty_text", "the tokenizer makes no token of it")


class _Quarantine:
    """Bad rows as lines of JSON, counted."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.counts: Counter[str] = Counter()

    def add(self, source: str, position: int, row: BadRow) -> None:
        self.counts[row.reason] += 1
        place = {"source": source, "position": position}
        line = json.dumps({**place, "reason": row.reason, "detail": row.detail, "raw": row.raw}, ensure_ascii=False)
        self._file.write(line + "\n")


class _Columns:
    """Rows on their way into one record batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._empty()

    def _empty(self) -> None:
        self._queries: list[npt.NDArray[np.int32]] = []
        self._documents: list[npt.NDArray[np.int32]] = []
        self._counts: list[int] = []
        self._lengths: list[int] = []
        self._scores: list[float] = []
        self.tokens = 0

    @property
    def rows(self) -> int:
        return len(self._counts)

    def add(self, row: _Row) -> None:
        query, documents, scores, texts = row
        self._queries.append(query)
        self._documents += documents
        self._counts.append(len(documents))
        self._lengths.append(max(len(text) for text in (query, *documents[:texts])))
        self._scores += scores or ()
        self.tokens += len(query) + sum(map(len, documents))

    def take(self) -> pa.RecordBatch:
        """The rows so far as a batch; there are none afterwards."""
        columns: dict[str, Any] = {
            "query": _lists(self._queries),
            "documents": pa.ListArray.from_arrays(_offsets(self._counts), _lists(self._documents)),
            "length": pa.array(self._lengths, pa.int32()),
        }
        if "scores" in self._schema.names:
            columns["scores"] = pa.ListArray.from_arrays(_offsets(self._counts), pa.array(self._scores, pa.float32()))
        self._empty()
        return pa.record_batch([columns[name] for name in self._schema.names], schema=self._schema)


def _lists(texts: Sequence[npt.NDArray[np.int32]]) -> pa.ListArray:
    values = np.concatenate([*texts, np.empty(0, np.int32)])
    return pa.ListArray.from_arrays(_offsets([len(text) for text in texts]), pa.array(values, pa.int32()))


def _offsets(lengths: Sequence[int]) -> pa.Array:
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())


def _groups(rows: Iterator[tuple[str, int, TrainingRow]]) -> Iterator[list[tuple[str, int, TrainingRow]]]:
    """Rows in order, cut so that a group has about ``_CHARACTERS`` characters; one row at least."""
    group: list[tuple[str, int, TrainingRow]] = []
    size = 0
    for place in rows:
        group.append(place)
        size += len(place[2].query or "") + sum(map(len, place[2].documents))
        if size >= _CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group
