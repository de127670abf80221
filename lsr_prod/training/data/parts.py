"""One part of a training set: slices are read, validated, tokenized and written as one Arrow file in bounded memory."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus import pinned_file, source_rows
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter
from lsr_prod.storage import Store, disk
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.training.data import known_positives, layouts, training_set
from lsr_prod.training.data.training_rows import TrainingRow, quarantine, read_rows

_CHARACTERS = 1_000_000  # of text tokenized at once: the encodings take a hundred times the memory of the text
_TOKENS = 4_000_000  # of a record batch
_EMPTY = np.empty(0, np.int32)
T = TypeVar("T")


class ReadRow(NamedTuple):
    """A validated row and its place."""

    piece: pinned_file.Slice  # slice of the row
    position: int  # byte of JSONL, row number of Parquet
    row: TrainingRow  # the texts


class TokenizedRow(NamedTuple):
    """A row of the training set."""

    query: np.typing.NDArray[np.int32]  # int32 token ids; empty without a query
    documents: list[
        np.typing.NDArray[np.int32]
    ]  # int32 token ids of each document; other columns of the layout may follow
    scores: tuple[float, ...] | None = None  # of a teacher, one per document
    texts: int | None = None  # number of leading ``documents`` whose length counts; None: all


def tokenize_rows(
    rows: Iterable[ReadRow], tokens: layouts.TokenSettings, layout: layouts.Layout | None
) -> Iterator[tuple[ReadRow, TokenizedRow]]:
    """Yield every row with its tokenized form, in order; ``token_problem`` tells which of them are bad."""
    for group in _groups(rows, _characters, _CHARACTERS):
        tokenized = (
            _words(group, tokens, layout) if isinstance(layout, layouts.WordLayout) else _texts(group, tokens, layout)
        )
        yield from zip(group, tokenized, strict=True)


def token_problem(source: TrainingRow, row: TokenizedRow, layout: layouts.Layout | None) -> tuple[str, str] | None:
    """Return (reason, detail) if a text of the row has no token, else None."""
    if isinstance(layout, layouts.WordLayout):
        return None if len(row.documents[1]) else ("empty_text", "none of its words is an output term")
    if (source.query is not None or isinstance(layout, layouts.TeacherLayout)) and not len(row.query):
        tokenizer = "the teacher's tokenizer" if isinstance(layout, layouts.TeacherLayout) else "the tokenizer"
        unit = "output term" if isinstance(layout, layouts.QueryTermLayout) else "token"
        return "empty_query", f"{tokenizer} makes no {unit} of it"
    return None if all(map(len, row.documents)) else ("empty_text", "the tokenizer makes no token of it")


def _groups(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Group consecutive items until they have a size of ``limit``."""
    group: list[T] = []
    held = 0
    for item in items:
        group.append(item)
        held += size(item)
        if held >= limit:
            yield group
            group, held = [], 0
    if group:
        yield group


def _characters(read: ReadRow) -> int:
    return len(read.row.query or "") + sum(map(len, read.row.documents))


def _texts(
    group: Sequence[ReadRow], tokens: layouts.TokenSettings, layout: layouts.Layout | None
) -> Iterator[TokenizedRow]:
    """Tokenize query and documents; with a teacher, its tokens of the text take the place of the query."""
    rows = [read.row for read in group]
    texts = [text for row in rows for text in row.documents]
    asked = [row.query for row in rows if row.query is not None]
    if isinstance(layout, layouts.TeacherLayout):
        queries = iter(layout.teacher.token_ids(texts, layout.teacher.document))
    elif isinstance(layout, layouts.QueryTermLayout):
        queries = iter(layouts.query_terms(asked, tokens, layout))
    else:
        queries = iter(tokens.query_ids(asked))
    documents = iter(tokens.token_ids(texts, tokens.document))
    for row in rows:
        query = next(queries) if row.query is not None or isinstance(layout, layouts.TeacherLayout) else _EMPTY
        yield TokenizedRow(query, [next(documents) for _ in row.documents], row.scores)


def _words(
    group: Sequence[ReadRow], tokens: layouts.TokenSettings, layout: layouts.WordLayout
) -> Iterator[TokenizedRow]:
    for ids, words in layouts.word_rows([read.row.documents[0] for read in group], tokens, tokens.document, layout):
        yield TokenizedRow(_EMPTY, [ids, words], texts=1)


def receipts_name(digest: str) -> str:
    """Name of the folder with the receipts of a set's parts in a work store."""
    return f"{training_set.set_name(digest)}.parts"


def quarantine_name(digest: str) -> str:
    """Name of the folder with the bad rows of a set in a work store."""
    return f"{training_set.set_name(digest)}.quarantine"


@dataclass(frozen=True, slots=True)
class PartMaker:
    """Makes the parts of one training set."""

    data: TrainingDataSettings  # the section ``data``
    tokens: layouts.TokenSettings  # tokenizer, prompts and lengths
    needs_negative: bool  # a row without a negative is bad
    digest: str  # of the set
    store: Store  # the work store
    options: dict[str, str]  # options of the object stores of sources
    layout: layouts.Layout | None = None  # content of rows beyond token ids; None: token ids alone

    def make(self, number: int, pieces: Sequence[pinned_file.Slice]) -> training_set.TrainingPart:
        """Write part ``number`` of the set, its bad rows, and last its receipt; again, it writes the same bytes."""
        # As many tasks run as there are cores: more threads per task would only compete with the other tasks.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        bad, good = BadRowWriter(self.store.child(quarantine_name(self.digest)), self.digest, number), count()
        with disk.scratch_folder(prefix="lsr_prod-part-") as scratch:
            path = scratch / "rows.arrow"
            batches = _write_rows(self._rows(pieces, bad, good), path, scores=self.data.kind == "scores")
            bad.flush()
            folder = self.store.child(training_set.set_name(self.digest))
            file = known_positives.put_arrow(folder, path, f"part-{number:06d}") if batches else None
        reasons = dict(sorted(bad.reasons.items()))
        return self._receipt(number, training_set.TrainingPart(file, tuple(batches), next(good), reasons))

    def _rows(
        self, pieces: Sequence[pinned_file.Slice], bad: BadRowWriter, good: Iterator[int]
    ) -> Iterator[TokenizedRow]:
        """Yield the rows of the set; ``good`` advances with every good row of the source."""
        rows = (row for row, _ in zip(self._tokenized(self._validated(pieces, bad), bad), good, strict=False))
        if isinstance(self.layout, layouts.PackedLayout):
            blocks = layouts.pack((row.documents[0] for row in rows), self.layout)
            return (TokenizedRow(_EMPTY, [block]) for block in blocks)
        return rows

    def _validated(self, pieces: Sequence[pinned_file.Slice], bad: BadRowWriter) -> Iterator[ReadRow]:
        for piece in pieces:
            for position, row in read_rows(piece, self.data, self.options, needs_negative=self.needs_negative):
                if isinstance(row, source_rows.BadRow):
                    quarantine(bad, piece, position, row)
                else:
                    yield ReadRow(piece, position, row)

    def _tokenized(self, rows: Iterator[ReadRow], bad: BadRowWriter) -> Iterator[TokenizedRow]:
        for (piece, position, source), row in tokenize_rows(rows, self.tokens, self.layout):
            if (problem := token_problem(source, row, self.layout)) is None:
                yield row
            else:
                raw = source_rows.show({"query": source.query, "documents": list(source.documents)})
                quarantine(bad, piece, position, source_rows.BadRow(*problem, None, raw))

    def _receipt(self, number: int, part: training_set.TrainingPart) -> training_set.TrainingPart:
        """Write the receipt of a part; if another task wrote it first, return the part of that task."""
        folder, name = self.store.child(receipts_name(self.digest)), f"{number:06d}.json"
        if folder.put_new(name, canonical_json(asdict(part))):
            return part
        earlier = folder.get(name)
        return part if earlier is None else training_set.TrainingPart.from_json(json.loads(earlier))


def _write_rows(rows: Iterator[TokenizedRow], path: Path, *, scores: bool) -> list[int]:
    """Write rows to an Arrow file; return the number of rows of each record batch."""
    schema = training_set.part_schema(scores=scores)
    batches: list[int] = []
    with pa.ipc.new_file(str(path), schema) as writer:
        for group in _groups(rows, lambda row: len(row.query) + sum(map(len, row.documents)), _TOKENS):
            writer.write_batch(_record_batch(group, schema))
            batches.append(len(group))
    return batches


def _record_batch(rows: Sequence[TokenizedRow], schema: pa.Schema) -> pa.RecordBatch:
    queries, counts = [row.query for row in rows], [len(row.documents) for row in rows]
    lengths = [max(map(len, (row.query, *row.documents[: row.texts]))) for row in rows]
    documents = _lists([document for row in rows for document in row.documents])
    columns: dict[str, Any] = {
        "query": _lists(queries),
        "documents": pa.ListArray.from_arrays(_offsets(counts), documents),
        "length": pa.array(lengths, pa.int32()),
        "query_key": pa.array(training_set.text_keys(queries)),
        "positive_key": pa.array(training_set.text_keys([row.documents[0] for row in rows])),
    }
    if "scores" in schema.names:
        scores = pa.array([score for row in rows for score in row.scores or ()], pa.float32())
        columns["scores"] = pa.ListArray.from_arrays(_offsets(counts), scores)
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _lists(texts: Sequence[np.typing.NDArray[np.int32]]) -> pa.ListArray:
    values = np.concatenate([*texts, _EMPTY])
    return pa.ListArray.from_arrays(_offsets([len(text) for text in texts]), pa.array(values, pa.int32()))


def _offsets(lengths: Sequence[int]) -> pa.Array:
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())
