"""Files of the evaluation sets: BEIR's layout per set, negatives, and training pairs as Parquet."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.storage.drafts import new_file
from lsr_prod_contrib.click_sets.evaluation_set import EvaluationSet
from lsr_prod_contrib.click_sets.lexical import document_texts
from lsr_prod_contrib.click_sets.log import ClickLog

Ints = npt.NDArray[np.int64]

SPLITS = {"test": "test", "validation": "dev"}
"""Folder of a set -> its name in BEIR, that of the file of judgments."""

PAIRS_SCHEMA = pa.schema(
    [pa.field("query", pa.string(), nullable=False), pa.field("positive", pa.string(), nullable=False)]
)
"""Columns of training pairs: rows of kind ``pairs``."""

_THIRDS = ("low", "middle", "high")
_ROWS = 65_536
_PART_ROWS = 1 << 20


def query_id(key: str) -> str:
    """Return the id of a query: 16 hexadecimal digits of BLAKE2b of the normalized query, for any seed and log."""
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def write_set(folder: Path, name: str, found: EvaluationSet, log: ClickLog) -> None:
    """Write a set."""
    ids = {query: query_id(log.keys[query].as_py()) for query in found.queries.tolist()}
    _write(folder / "corpus.jsonl", (_json(row) for row in _documents(found.corpus, log)))
    _write(folder / "queries.jsonl", (_json(row) for row in _queries(found, ids, log)))
    judgments = ((ids[query], log.documents[document].as_py(), 1) for query, document in _pairs(found.positives))
    _write(folder / "qrels" / f"{name}.tsv", _tsv(("query-id", "corpus-id", "score"), judgments))
    negatives = (
        (ids[query], log.documents[document].as_py(), f"{ratio:.6f}")
        for (query, document), ratio in zip(_pairs(found.negatives), found.negative_ratio.tolist(), strict=True)
    )
    _write(folder / "negatives.tsv", _tsv(("query-id", "corpus-id", "matched-term-ratio"), negatives))
    removed = (
        {"_id": query_id(key), "text": text}
        for rows in _blocks(found.removed)
        for key, text in zip(_strings(log.keys, rows), _strings(log.queries, rows), strict=True)
    )
    _write(folder / "removed_queries.jsonl", (_json(row) for row in removed))


def write_pairs(folder: Path, pairs: tuple[Ints, Ints], log: ClickLog) -> int:
    """Write training pairs as parts of at most 1,048,576 rows.

    Returns:
        Number of pairs.
    """
    query, document = pairs
    for part, start in enumerate(range(0, max(len(query), 1), _PART_ROWS)):
        stop = min(start + _PART_ROWS, len(query))
        with new_file(folder / f"pairs-{part:05}.parquet") as file, pq.ParquetWriter(file, PAIRS_SCHEMA) as writer:
            for low in range(start, stop, _ROWS):
                rows = slice(low, min(low + _ROWS, stop))
                titles, texts = _strings(log.titles, document[rows]), _strings(log.texts, document[rows])
                columns = [_strings(log.queries, query[rows]), document_texts(titles, texts)]
                writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=PAIRS_SCHEMA))
    return len(query)


def _documents(documents: Ints, log: ClickLog) -> Iterator[dict[str, str]]:
    for rows in _blocks(documents):
        columns = (_strings(column, rows) for column in (log.documents, log.titles, log.texts))
        for doc_id, title, text in zip(*columns, strict=True):
            yield {"_id": doc_id, "title": title, "text": text}


def _queries(found: EvaluationSet, ids: dict[int, str], log: ClickLog) -> Iterator[dict[str, Any]]:
    texts = _strings(log.queries, found.queries)
    for query, text, ratio, third in zip(
        found.queries.tolist(), texts, found.ratio.tolist(), found.third.tolist(), strict=True
    ):
        yield {"_id": ids[query], "text": text, "metadata": {"matched_term_ratio": ratio, "third": _THIRDS[third]}}


def _pairs(pairs: tuple[Ints, Ints]) -> Iterator[tuple[int, int]]:
    return zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)


def _blocks(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))


def _strings(column: pa.Array, rows: Ints) -> list[str]:
    strings: list[str] = column.take(pa.array(rows)).to_pylist()
    return strings


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _tsv(header: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    # An id that begins with a quote has to be quoted: readers of BEIR's judgments use module csv.
    line = io.StringIO()
    writer = csv.writer(line, delimiter="\t", lineterminator="\n")
    for row in chain([header], rows):
        writer.writerow(row)
        yield line.getvalue().encode()
        line.seek(0)
        line.truncate()


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with new_file(path) as file:
        file.writelines(lines)
