"""Readers of queries and relevance judgments in the formats of BEIR and TREC."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ir_measures

from lsr_prod.errors import SourceError

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


def read_judged(queries: Path, qrels: Path) -> JudgedQueries:
    """Read queries and judgments.

    Args:
        queries: JSON lines with ``_id`` and ``text``.
        qrels: BEIR's tab-separated file with a header, or TREC's four columns without header.

    Raises:
        SourceError: a line is invalid, or no judged query has a text.
    """
    judgments = list(_read_qrels(qrels))
    judged = {judgment.query_id for judgment in judgments}
    texts = {query_id: text for query_id, text in _read_queries(queries) if query_id in judged}
    if not texts:
        raise SourceError(f"no query of {queries} is judged in {qrels}; the two files do not belong together")
    return JudgedQueries(texts, [judgment for judgment in judgments if judgment.query_id in texts])


def _read_queries(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                yield str(row["_id"]), str(row["text"])
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise SourceError(f"{path}:{number} is not a query; each line needs _id and text") from error


def _read_qrels(path: Path) -> Iterator[ir_measures.Qrel]:
    with path.open(encoding="utf-8", newline="") as file:
        header = file.readline().split()
        if header[:2] != ["query-id", "corpus-id"]:
            file.seek(0)
            yield from ir_measures.read_trec_qrels(str(path))  # type: ignore[no-untyped-call]
            return
        for number, row in enumerate(csv.reader(file, delimiter="\t"), start=2):
            try:
                query_id, doc_id, relevance = row
                yield ir_measures.Qrel(query_id, doc_id, int(relevance))
            except ValueError as error:
                raise SourceError(
                    f"{path}:{number} is not a judgment; each line needs query-id, corpus-id, score"
                ) from error
