"""Validation of a model during training with an index of a collection; needs neither Ray nor a bundle."""

import hashlib
import heapq
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ir_measures

from lsr_prod import errors, logs
from lsr_prod.config.training import ValidationSettings
from lsr_prod.evaluation import measures, rows, vector_evaluation
from lsr_prod.evaluation.collection import read_judged, require_files
from lsr_prod.storage.formats import bundle_format, sparse

log = logs.get_log(__name__)

_CHUNK = 2048  # texts per encode call


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents, queries and judgments of a validation."""

    documents: dict[str, str]  # document id -> title and text, joined by a space
    queries: dict[str, str]  # query id -> text; each has a judgment
    qrels: list[ir_measures.Qrel]  # judgments of these queries


Encode = Callable[[Sequence[str], bundle_format.Kind], sparse.SparseBatch]


class Validator:
    """Encodes, indexes and searches the collection at every call. Used by one process of a training.

    Attributes:
        collection: the collection.
    """

    def __init__(self, settings: ValidationSettings, scratch: Path, options: Mapping[str, str] | None = None) -> None:
        """Read the collection."""
        self.collection = read_collection(settings, options)
        self._settings, self._scratch = settings, scratch

    def __call__(self, encode: Encode) -> vector_evaluation.LevelReport:
        """Validate a model."""
        start = time.perf_counter()
        settings, collection = self._settings, self.collection
        (report,) = vector_evaluation.evaluate(
            _encoded(collection.documents, encode, "document", settings.dk),
            _encoded(collection.queries, encode, "query", settings.qk),
            collection.qrels,
            levels=[(settings.qk, settings.dk)],
            thresholds=[settings.overlap_threshold],
            measures=settings.measures,
            scratch=self._scratch,
        )
        seconds = time.perf_counter() - start
        log.info("validated", extra={"fields": {**report.measures, "flops": report.flops, "seconds": seconds}})
        return report


def _encoded(
    texts: Mapping[str, str], encode: Encode, kind: bundle_format.Kind, keep: int
) -> vector_evaluation.Encoded:
    """Encode and prune in chunks, because an untrained encoder returns thousands of terms per text."""
    values = list(texts.values())
    parts = []
    for start in range(0, len(values), _CHUNK):
        part = encode(values[start : start + _CHUNK], kind)
        parts.append(part.top(keep) if keep else part)
    return vector_evaluation.Encoded(list(texts), sparse.SparseBatch.concatenate(parts))


def read_collection(settings: ValidationSettings, options: Mapping[str, str] | None = None) -> Collection:
    """Read and check the whole collection. Training calls it before any work.

    If there are more queries or documents than configured, those with the smallest sha256 of their id are selected:
    always the same ones, from the whole file. Relevant documents of the selected queries are selected first, then
    other judged documents, then the rest.
    """
    require_files({f"validation.{name}": getattr(settings, name) for name in ("corpus", "queries", "qrels")}, options)
    measures.parse_measures("validation.measures", settings.measures)
    judged = read_judged(settings.queries, settings.qrels, options)
    queries = {query_id: judged.queries[query_id] for query_id in _sample(judged.queries, settings.max_queries)}
    qrels = [qrel for qrel in judged.qrels if qrel.query_id in queries]
    documents = _read_documents(settings, qrels, options)
    answered = {qrel.query_id for qrel in qrels if qrel.relevance > 0 and qrel.doc_id in documents}
    if not answered:
        raise errors.SourceError(
            f"no document of {settings.corpus} is relevant in {settings.qrels}; the two files do not belong together"
        )
    if len(answered) < len(queries):
        fields = {"queries": len(queries), "without": len(queries) - len(answered)}
        log.warning("queries without a relevant document in the corpus count as 0", extra={"fields": fields})
    return Collection(documents, queries, qrels)


def _read_documents(
    settings: ValidationSettings, qrels: Sequence[ir_measures.Qrel], options: Mapping[str, str] | None
) -> dict[str, str]:
    """Read the documents of the validation; the file is read once, and only selected texts are kept in memory."""
    relevant = {qrel.doc_id for qrel in qrels if qrel.relevance > 0}
    other = {qrel.doc_id for qrel in qrels} - relevant
    if settings.documents is None:
        return dict(_corpus(settings.corpus, options))
    found: dict[str, str] = {}

    def unjudged() -> Iterator[tuple[bytes, str, str]]:
        for doc_id, text in _corpus(settings.corpus, options):
            if doc_id in relevant or doc_id in other:
                found[doc_id] = text
            else:
                yield _hash(doc_id), doc_id, text

    rest = heapq.nsmallest(settings.documents, unjudged())
    first = [doc_id for doc_id in found if doc_id in relevant]
    if len(first) > settings.documents:
        raise errors.ConfigError(
            "validation.documents",
            f"{settings.documents} is less than the {len(first)} relevant documents of the queries",
            f"give {len(first)} or more, or fewer queries by validation.max_queries",
        )
    second = sorted((doc_id for doc_id in found if doc_id in other), key=_hash)
    taken = [*first, *second, *(doc_id for _, doc_id, _ in rest)][: settings.documents]
    found |= {doc_id: text for _, doc_id, text in rest}
    return {doc_id: found[doc_id] for doc_id in sorted(taken)}


def _corpus(path: str, options: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield ids and texts of a corpus in the format of BEIR."""
    seen: set[str] = set()
    for number, line in rows.numbered_lines(path, options):
        doc_id, text = _parse(line, f"{path}:{number}")
        if doc_id in seen:
            raise errors.SourceError(f"{path}:{number} repeats the _id {doc_id!r}; each document needs a unique _id")
        seen.add(doc_id)
        yield doc_id, text


def _parse(line: str, place: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        doc_id, parts = str(row["_id"]), (row.get("title"), row["text"])
        text = " ".join(part for part in parts if part)
        (doc_id + text).encode()  # JSON can contain lone surrogates, which tokenizers reject
    except (json.JSONDecodeError, UnicodeEncodeError, KeyError, TypeError) as error:
        raise errors.SourceError(f"{place} is not a document; each line needs _id and text") from error
    return doc_id, text


def _sample(ids: Iterable[str], count: int | None) -> list[str]:
    return list(ids) if count is None else heapq.nsmallest(count, ids, key=_hash)


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
