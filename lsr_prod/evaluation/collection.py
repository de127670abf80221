"""Readers of queries and relevance judgments in the formats of TREC and BEIR and as JSON lines."""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ir_measures

from lsr_prod.encoding.interchange.jsonl import numbered_lines
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.storage.folders import file_exists

_QUERY_HEADERS = {"id", "_id", "qid", "query-id", "query_id", "query id"}
_TEXT_HEADERS = {"text", "query", "title"}


@dataclass(frozen=True, slots=True)
class JudgedQueries:
    """The judged queries of a collection."""

    queries: dict[str, str]  # query id -> text; only queries with a judgment
    qrels: list[ir_measures.Qrel]  # all judgments of these queries


def require_files(places: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Verify that the file of each setting exists."""
    for field, place in places.items():
        if not file_exists(place, options):
            raise ConfigError(field, f"there is no file at {place}", "give a path or URI that exists")


def read_judged(queries: str | Path, qrels: str | Path, options: Mapping[str, str] | None = None) -> JudgedQueries:
    """Read queries and judgments."""
    judgments = list(read_qrels(str(qrels), options))
    judged = {judgment.query_id for judgment in judgments}
    texts = {query_id: text for query_id, text in read_queries(str(queries), options) if query_id in judged}
    if not texts:
        raise SourceError(f"no query of {queries} is judged in {qrels}; the two files do not belong together")
    return JudgedQueries(texts, [judgment for judgment in judgments if judgment.query_id in texts])


def read_queries(place: str, options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield id and text of every query; the format is recognized from the content.

    Formats: JSON lines with ``_id`` and ``text``, as in BEIR; lines of id, tab and text, as the topics of TREC are
    often given, with or without a header.

    Raises:
        SourceError: a line is invalid, or an id is repeated.
        StorageError: the file does not exist or cannot be read.
    """
    seen: set[str] = set()
    form = ""
    for number, line in numbered_lines(place, options):
        where = f"{place}:{number}"
        if not form:
            form = "json" if line.lstrip().startswith("{") else "tsv"
            if form == "tsv" and _is_query_header(line):
                continue
        query_id, text = _json_query(where, line) if form == "json" else _tsv_query(where, line)
        if query_id in seen:
            raise SourceError(f"{where} repeats the query id {query_id!r}; each query needs an id of its own")
        seen.add(query_id)
        yield query_id, text


def read_qrels(place: str, options: Mapping[str, str] | None = None) -> Iterator[ir_measures.Qrel]:
    """Yield every judgment; the format is recognized from the content.

    Formats: TREC (``query iteration document relevance``, white space between them, no header); BEIR (tab-separated
    ``query-id``, ``corpus-id`` and ``score``, with or without its header); JSON lines with ``query_id``, ``doc_id`` and
    ``relevance``.
    """
    form = ""
    for number, line in numbered_lines(place, options):
        where = f"{place}:{number}"
        if not form:
            form = _qrels_form(where, line)
            if form == "header":
                form = "beir"
                continue
        if form == "json":
            yield _json_judgment(where, line)
        elif form == "beir":
            yield _judgment(where, next(csv.reader([line], delimiter="\t")), (0, 1, 2), "query-id, corpus-id, score")
        else:
            yield _judgment(where, line.split(), (0, 2, 3, 1), "query, iteration, document, relevance")


def _is_query_header(line: str) -> bool:
    columns = [column.strip().lower() for column in line.split("\t")]
    return len(columns) >= 2 and columns[0] in _QUERY_HEADERS and columns[1] in _TEXT_HEADERS


def _json_query(where: str, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        query_id, text = str(row["_id"]), row["text"]
        (query_id + text).encode()  # JSON can contain lone surrogates, which tokenizers reject
    except (json.JSONDecodeError, UnicodeEncodeError, KeyError, TypeError) as error:
        raise SourceError(f"{where} is not a query; each line needs _id and text") from error
    return query_id, text


def _tsv_query(where: str, line: str) -> tuple[str, str]:
    query_id, tab, text = line.partition("\t")
    if not tab or not query_id.strip():
        raise SourceError(f"{where} is not a query; each line needs id, tab and text, or JSON with _id and text")
    return query_id.strip(), text.strip()


def _qrels_form(where: str, line: str) -> str:
    """Return the format of a file of judgments from its first line."""
    if line.lstrip().startswith("{"):
        return "json"
    if line.split()[:2] == ["query-id", "corpus-id"]:
        return "header"
    if len(line.split("\t")) == 3:
        return "beir"
    if len(line.split()) == 4:
        return "trec"
    raise SourceError(
        f"{where} is not a judgment; give query-id, corpus-id, score (BEIR), query, iteration, document, relevance "
        "(TREC), or JSON with query_id, doc_id and relevance"
    )


def _judgment(where: str, columns: list[str], places: tuple[int, ...], names: str) -> ir_measures.Qrel:
    try:
        if len(columns) != len(places):
            raise ValueError("wrong number of columns")
        query_id, doc_id, relevance, *iteration = (columns[place].strip() for place in places)
        return ir_measures.Qrel(query_id, doc_id, int(relevance), *iteration)
    except ValueError as error:
        raise SourceError(f"{where} is not a judgment; each line needs {names}") from error


def _json_judgment(where: str, line: str) -> ir_measures.Qrel:
    try:
        row = json.loads(line)
        relevance = row["relevance"]
        if isinstance(relevance, bool) or int(relevance) != relevance:
            raise ValueError("not an integer")
        return ir_measures.Qrel(str(row["query_id"]), str(row["doc_id"]), int(relevance))
    except (ValueError, KeyError, TypeError) as error:  # ValueError: also invalid JSON
        raise SourceError(f"{where} is not a judgment; each line needs query_id, doc_id and relevance") from error
