"""Readers of queries and relevance judgments in the formats of BEIR and TREC."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ir_measures

from lsr_prod.errors import SourceError
from lsr_prod.storage.folders import open_text

__all__ = ["JudgedQueries", "read_judged"]


@dataclass(frozen=True, slots=True)
class JudgedQueries:
    """The judged queries of a collection.

    Attributes:
        queries: query id -> text; only queries with a judgment.
        qrels: all judgments of these queries.
    """

    queries: dict[str, str]
    qrels: list[ir_measures.Qrel]


def read_judged(queries: str | Path, qrels: str | Path, options: Mapping[str, str] | None = None) -> JudgedQueries:
    """Read queries and judgments.

    Args:
        queries: path or URI of JSON lines with ``_id`` and ``text``.
        qrels: path or URI of BEIR's tab-separated file with a header, or TREC's four columns without header.
        options: options of the object store.

    Raises:
        SourceError: a line is invalid, or no judged query has a text.
        StorageError: a file does not exist or cannot be read.
    """
    judgments = list(_read_qrels(str(qrels), options))
    judged = {judgment.query_id for judgment in judgments}
    texts = {query_id: text for query_id, text in _read_queries(str(queries), options) if query_id in judged}
    if not texts:
        raise SourceError(f"no query of {queries} is judged in {qrels}; the two files do not belong together")
    return JudgedQueries(texts, [judgment for judgment in judgments if judgment.query_id in texts])


def _read_queries(path: str, options: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    with open_text(path, options) as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                yield str(row["_id"]), str(row["text"])
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise SourceError(f"{path}:{number} is not a query; each line needs _id and text") from error


def _read_qrels(path: str, options: Mapping[str, str] | None) -> Iterator[ir_measures.Qrel]:
    with open_text(path, options) as file:
        first = file.readline()
        if first.split()[:2] != ["query-id", "corpus-id"]:
            lines = io.StringIO(first + file.read())
            yield from ir_measures.read_trec_qrels(lines)  # type: ignore[no-untyped-call]
            return
        for number, row in enumerate(csv.reader(file, delimiter="\t"), start=2):
            try:
                query_id, doc_id, relevance = row
                yield ir_measures.Qrel(query_id, doc_id, int(relevance))
            except ValueError as error:
                raise SourceError(
                    f"{path}:{number} is not a judgment; each line needs query-id, corpus-id, score"
                ) from error
