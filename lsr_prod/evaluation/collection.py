"""Readers of queries and relevance judgments in the formats of TREC, MS MARCO and BEIR.

Topics of TREC are read as tagged text, not by a parser of XML: only references to characters are expanded.
"""

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.evaluation.rows import RowKind, identifier, numbered_lines, parse_number, read_rows
from lsr_prod.logs import get_log
from lsr_prod.storage.folders import file_exists

log = get_log(__name__)

QUERY_NAMES = ("queryid", "qid", "query", "topic", "topicid")
DOCUMENT_NAMES = ("corpusid", "docid", "docno", "documentid", "pid", "passageid", "did", "document", "doc")
_LARGEST_GRADE = 1_000_000  # trec_eval counts documents per grade: it needs memory for each, and loses larger ones
_QUERY = RowKind(
    "a query",
    "lines of id, tab and text, a header such as id,text, JSON with _id and text, or topics of TREC",
    {"id": ("id", *QUERY_NAMES, "number"), "text": ("text", "querytext", "query", "title")},
    required=frozenset({"id", "text"}),
    layouts=[("id", "text")],
)
_JUDGMENT = RowKind(
    "a judgment",
    "query, iteration, document, grade (TREC), query, document, grade, a header such as query-id, corpus-id, score, or "
    "JSON with query_id, doc_id and relevance",
    {
        "query_id": QUERY_NAMES,
        "doc_id": DOCUMENT_NAMES,
        "relevance": ("relevance", "rel", "score", "grade", "label", "judgment", "relevancegrade"),
        "iteration": ("iteration", "iter", "q0"),
    },
    required=frozenset({"query_id", "doc_id", "relevance"}),
    layouts=[("query_id", "iteration", "doc_id", "relevance"), ("query_id", "doc_id", "relevance")],
    values=("relevance",),
)

# Topics of TREC.
_STARTS = ("<top", "<?xml", "<!--", "<!doctype")
_DECLARATION = re.compile(r"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_TOPIC = re.compile(r"<top(?:ic)?(\s[^<>]*)?>", re.IGNORECASE)
_END = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
_ID = re.compile(r"""(?:number|num|id|qid)\s*=\s*["']([^"']*)["']""", re.IGNORECASE)
_LABEL = re.compile(r"\A(?:number|topic|title)\s*:\s*", re.IGNORECASE)
_ADVICE = "each topic needs <num> or the attribute number, and <title> or <query>"


@dataclass(frozen=True, slots=True)
class JudgedQueries:
    """The judged queries of a collection."""

    queries: dict[str, str]  # query id -> text; only queries with a judgment
    qrels: list[ir_measures.Qrel]  # all judgments of these queries


def require_files(places: Mapping[str, str], options: Mapping[str, str] | None) -> None:
    """Verify that the file of each setting exists."""
    for field, place in places.items():
        if not file_exists(place, options):
            raise ConfigError(field, f"there is no file at {place}", "give a path or URI that exists")


def read_judged(queries: str | Path, qrels: str | Path, options: Mapping[str, str] | None = None) -> JudgedQueries:
    """Read queries and judgments; judgments of queries without a text are counted in the log."""
    judgments = list(read_qrels(str(qrels), options))
    judged = {judgment.query_id for judgment in judgments}
    texts = {query_id: text for query_id, text in read_queries(str(queries), options) if query_id in judged}
    if not texts:
        raise SourceError(f"no query of {queries} is judged in {qrels}; the two files do not belong together")
    if missing := len(judged) - len(texts):
        fields = {"queries": missing, "qrels": str(qrels)}
        log.warning("judgments of queries without a text are ignored", extra={"fields": fields})
    return JudgedQueries(texts, [judgment for judgment in judgments if judgment.query_id in texts])


def check_relevant(qrels: Iterable[ir_measures.Qrel], place: str, *finders: Callable[[str], object]) -> None:
    """Refuse judgments of another corpus; relevant documents are looked up until one is found.

    Args:
        qrels: judgments.
        place: file or URI of the judgments.
        finders: ``Snapshot.place`` of each index.

    Raises:
        SourceError: none of the indexes has a relevant document, or there is none.
    """
    relevant = sorted({judgment.doc_id for judgment in qrels if judgment.relevance > 0})
    if not any(find(doc_id) for doc_id in relevant for find in finders):
        shown = f", for example {relevant[0]!r}" if relevant else ""
        problem = f"no document that {place} judges as relevant is in the index{shown}"
        raise SourceError(f"{problem}; give the judgments of this corpus, with the ids of its documents")


def read_queries(place: str, options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield id and text of every query; the format is recognized from the content.

    Formats: lines of id, tab and text (MS MARCO); CSV and TSV with a header; JSON lines or Parquet with ``_id`` and
    ``text`` (BEIR); topics of TREC in SGML or XML.

    Raises:
        SourceError: a row is invalid, or an id is repeated.
        StorageError: the file does not exist or cannot be read.
    """
    seen: set[str] = set()
    for where, query_id, text in _queries(place, options):
        if query_id in seen:
            raise SourceError(f"{where} repeats the query id {query_id!r}; each query needs an id of its own")
        seen.add(query_id)
        yield query_id, text


def read_qrels(place: str, options: Mapping[str, str] | None = None) -> Iterator[ir_measures.Qrel]:
    """Yield every judgment once; the format is recognized from the content.

    Formats: TREC (``query iteration document grade``); ``query document grade``; CSV and TSV with a header such as that
    of BEIR (``query-id corpus-id score``) or MS MARCO (``qid pid rel``); JSON lines or Parquet with such names; JSON
    ``{query: {document: grade}}``. A grade is read as trec_eval reads it: its fraction is cut off, and the log counts
    such grades.

    Raises:
        SourceError: a row is invalid, two judgments contradict each other, or no grade with a fraction is 1 or more.
        StorageError: the file does not exist or cannot be read.
    """
    seen: dict[tuple[str, str], ir_measures.Qrel] = {}
    cut, relevant = 0, False
    for where, row in read_rows(place, _JUDGMENT, options):
        judgment, number = _judgment(where, row)
        first = seen.setdefault((judgment.query_id, judgment.doc_id), judgment)
        if first.relevance != judgment.relevance:
            raise SourceError(
                f"{where} gives document {judgment.doc_id!r} of query {judgment.query_id!r} the grade "
                f"{judgment.relevance}, but an earlier row gives it {first.relevance}; remove one of them"
            )
        cut += number != judgment.relevance
        relevant = relevant or judgment.relevance > 0
        if first is judgment or first.iteration != judgment.iteration:
            yield judgment
    if cut and not relevant:
        raise SourceError(
            f"{place} has grades with fractions, but none of 1 or more, so no document is relevant; scale them"
        )
    if cut:
        fields = {"file": place, "grades": cut}
        log.warning("fractions of grades are cut off, as by trec_eval", extra={"fields": fields})


def is_topics(place: str, options: Mapping[str, str] | None = None) -> bool:
    """Return whether a file begins as topics do."""
    _, line = next(numbered_lines(place, options), (0, ""))
    return line.lstrip().lower().startswith(_STARTS)


def read_topics(place: str, options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield place, id and text of every topic: of its title, or of its query if it has no title."""
    numbers, texts = zip(*numbered_lines(place, options), strict=True)
    text = "\n".join(texts)
    if _DECLARATION.search(text):
        raise SourceError(f"{place} declares a document type or an entity, which is not read; remove the declaration")
    text = _replace(text, "<!--", "-->", lambda comment: "\n" * comment.count("\n"))
    text = _replace(text, "<![CDATA[", "]]>", html.escape)
    before, *pieces = _TOPIC.split(text)  # text before the first topic; then attributes and content of every topic
    line = before.count("\n")
    for attributes, content in zip(pieces[::2], pieces[1::2], strict=True):
        where = f"{place}:{numbers[line]}"
        body, *rest = _END.split(content, maxsplit=1)
        if not rest:
            raise SourceError(f"{where} begins a topic that does not end; close it with </top> or </topic>")
        found = _ID.search(attributes or "")
        topic_id = html.unescape(found[1]).strip() if found else _content(body, "num", "number", "id", "qid")
        query = _content(body, "title", "query") or ("" if "<" in body else _plain(body))
        if not topic_id or not query:
            raise SourceError(f"{where} is a topic without {'text' if topic_id else 'an id'}; {_ADVICE}")
        yield where, topic_id, query
        line += (attributes or "").count("\n") + content.count("\n")


def _queries(place: str, options: Mapping[str, str] | None) -> Iterator[tuple[str, str, str]]:
    if not place.endswith(".parquet") and is_topics(place, options):
        yield from read_topics(place, options)
        return
    for where, row in read_rows(place, _QUERY, options):
        try:
            query_id, text = identifier(row["id"]), row["text"]
            (query_id + text).encode()  # JSON can contain lone surrogates, which tokenizers reject
        except (TypeError, ValueError) as error:
            raise _QUERY.invalid(where, error) from error
        yield where, query_id, text


def _judgment(where: str, row: Mapping[str, Any]) -> tuple[ir_measures.Qrel, float]:
    """Return a judgment, and its grade as it was given."""
    try:
        query_id, doc_id = identifier(row["query_id"]), identifier(row["doc_id"])
        number = parse_number(row["relevance"])
        if not abs(number) <= _LARGEST_GRADE:  # not a number, either
            raise ValueError(f"the grade {row['relevance']} is not between -{_LARGEST_GRADE} and {_LARGEST_GRADE}")
        return ir_measures.Qrel(query_id, doc_id, math.trunc(number), str(row.get("iteration", "0"))), number
    except (TypeError, ValueError) as error:
        raise _JUDGMENT.invalid(where, error) from error


def _replace(text: str, begin: str, end: str, by: Callable[[str], str]) -> str:
    """Replace every section between two marks; a regular expression would need quadratic time for unclosed ones."""
    first, *sections = text.split(begin)
    split = [section.partition(end) for section in sections]
    return first + "".join(by(inside) + rest if closed else begin + inside for inside, closed, rest in split)


def _content(body: str, *tags: str) -> str:
    """Return the text after the first of some tags that has one; elements of the SGML form are not closed."""
    found = (re.search(rf"<{tag}(?:\s[^<>]*)?>([^<]*)", body, re.IGNORECASE) for tag in tags)
    return next((text for match in found if match and (text := _plain(match[1]))), "")


def _plain(text: str) -> str:
    return " ".join(_LABEL.sub("", html.unescape(text).strip()).split())
