"""Validated rows become tokenized rows, in the layout of the training set and in groups of bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.slices import Slice
from lsr_prod.training_data.layouts import (
    Layout,
    QueryTermLayout,
    TeacherLayout,
    WordLayout,
    query_terms,
    word_rows,
)
from lsr_prod.training_data.rows import TrainingRow
from lsr_prod.training_data.tokens import TokenSettings

_CHARACTERS = 1_000_000  # of text tokenized at once: the encodings take a hundred times the memory of the text
_EMPTY = np.empty(0, np.int32)


class ReadRow(NamedTuple):
    """A validated row and its place.

    Attributes:
        piece: slice of the row.
        position: byte of JSONL, row number of Parquet.
        row: the texts.
    """

    piece: Slice
    position: int
    row: TrainingRow


class TokenizedRow(NamedTuple):
    """A row of the training set.

    Attributes:
        query: int32 token ids; empty without a query.
        documents: int32 token ids of each document; other columns of the layout may follow.
        scores: of a teacher, one per document.
        texts: number of leading ``documents`` whose length counts; None: all.
    """

    query: npt.NDArray[np.int32]
    documents: list[npt.NDArray[np.int32]]
    scores: tuple[float, ...] | None = None
    texts: int | None = None


def tokenize_rows(
    rows: Iterable[ReadRow], tokens: TokenSettings, layout: Layout | None
) -> Iterator[tuple[ReadRow, TokenizedRow]]:
    """Yield every row with its tokenized form, in order; ``token_problem`` tells which of them are bad."""
    for group in _groups(rows):
        tokenized = _words(group, tokens, layout) if isinstance(layout, WordLayout) else _texts(group, tokens, layout)
        yield from zip(group, tokenized, strict=True)


def token_problem(source: TrainingRow, row: TokenizedRow, layout: Layout | None) -> tuple[str, str] | None:
    """Return (reason, detail) if a text of the row has no token, else None."""
    if isinstance(layout, WordLayout):
        return None if len(row.documents[1]) else ("empty_text", "none of its words is an output term")
    if (source.query is not None or isinstance(layout, TeacherLayout)) and not len(row.query):
        tokenizer = "the teacher's tokenizer" if isinstance(layout, TeacherLayout) else "the tokenizer"
        unit = "output term" if isinstance(layout, QueryTermLayout) else "token"
        return "empty_query", f"{tokenizer} makes no {unit} of it"
    return None if all(map(len, row.documents)) else ("empty_text", "the tokenizer makes no token of it")


def _groups(rows: Iterable[ReadRow]) -> Iterator[list[ReadRow]]:
    """Group consecutive rows until they have about ``_CHARACTERS`` characters."""
    group: list[ReadRow] = []
    size = 0
    for read in rows:
        group.append(read)
        size += len(read.row.query or "") + sum(map(len, read.row.documents))
        if size >= _CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _texts(group: Sequence[ReadRow], tokens: TokenSettings, layout: Layout | None) -> Iterator[TokenizedRow]:
    """Tokenize query and documents; with a teacher, its tokens of the text take the place of the query."""
    rows = [read.row for read in group]
    texts = [text for row in rows for text in row.documents]
    asked = [row.query for row in rows if row.query is not None]
    if isinstance(layout, TeacherLayout):
        queries = iter(layout.teacher.token_ids(texts, layout.teacher.document))
    elif isinstance(layout, QueryTermLayout):
        queries = iter(query_terms(asked, tokens, layout))
    else:
        queries = iter(tokens.query_ids(asked))
    documents = iter(tokens.token_ids(texts, tokens.document))
    for row in rows:
        query = next(queries) if row.query is not None or isinstance(layout, TeacherLayout) else _EMPTY
        yield TokenizedRow(query, [next(documents) for _ in row.documents], row.scores)


def _words(group: Sequence[ReadRow], tokens: TokenSettings, layout: WordLayout) -> Iterator[TokenizedRow]:
    texts = [read.row.documents[0] for read in group]
    for ids, words in word_rows(texts, tokens, tokens.document, layout):
        yield TokenizedRow(_EMPTY, [ids, words], texts=1)
