"""Runs: the rankings of a system, as TREC files of six columns, and in the forms that other tools write."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.collection import DOCUMENT_NAMES, QUERY_NAMES
from lsr_prod.evaluation.rows import RowKind, identifier, parse_number, read_rows
from lsr_prod.logs import get_log
from lsr_prod.storage.folders import store_file

log = get_log(__name__)
Ranking = Sequence[tuple[str, float]]
_NOT_IN_TAG = re.compile(r"[^A-Za-z0-9_.-]+")
_UNNAMED = "third column"
_RUN = RowKind(
    "a line of a run",
    "six columns (query Q0 document rank score tag), three columns (query, document, score or rank), JSON {query: "
    "{document: score}}, or JSON with query_id, doc_id and score",
    {"query_id": QUERY_NAMES, "doc_id": DOCUMENT_NAMES, "score": ("score", "similarity", "sim"), "rank": ("rank",)},
    required=frozenset({"query_id", "doc_id"}),
    layouts=[("query_id", "q0", "doc_id", "rank", "score", "tag"), ("query_id", "doc_id", _UNNAMED)],
    values=("score", _UNNAMED),
)


def write_run(
    place: str | Path, rankings: Mapping[str, Ranking], tag: str, options: Mapping[str, str] | None = None
) -> str:
    """Write rankings as ``query Q0 document rank score tag``.

    A TREC run cannot name an id with white space. If there is one, the rankings are written as JSON lines with
    ``query_id``, ``doc_id`` and ``score``, and the name of the file ends with ``.jsonl``; ``read_run`` reads both.

    Args:
        place: path or URI of the file, which is replaced; its folder is created if absent.
        rankings: query id -> (document id, score), best first.
        tag: name of the run; characters that the format does not allow become ``_``.
        options: options of the object store.

    Returns:
        The path or URI of the file.

    Raises:
        StorageError: the store or the disk fails.
    """
    tag, place = _NOT_IN_TAG.sub("_", tag), str(place)
    rows = [(query_id, *row) for query_id, ranking in rankings.items() for row in enumerate(ranking, start=1)]
    spaced = next((row for row in rows if any(one.split() != [one] for one in (row[0], row[2][0]))), None)
    if spaced is None:
        lines = [f"{query} Q0 {doc_id} {rank} {float(score)!r} {tag}\n" for query, rank, (doc_id, score) in rows]
    else:
        place = f"{place.removesuffix('.trec')}.jsonl"
        fields = {"file": place, "query_id": spaced[0], "doc_id": spaced[2][0]}
        log.warning("run written as JSON lines, since a TREC run has no white space in ids", extra={"fields": fields})
        found = ({"query_id": query, "doc_id": doc_id, "score": score} for query, _, (doc_id, score) in rows)
        lines = [f"{json.dumps(row)}\n" for row in found]
    store_file(place, "".join(lines).encode(), options)
    return place


def read_run(place: str, options: Mapping[str, str] | None = None) -> dict[str, list[tuple[str, float]]]:
    """Read rankings; the format is recognized from the content.

    Formats: TREC (``query Q0 document rank score tag``); three columns (query, document, score or rank); CSV and TSV
    with a header; JSON ``{query: {document: score}}`` in one value or one per line; JSON lines or Parquet with
    ``query_id``, ``doc_id`` and ``score`` or ``rank``. A rank is read only if there is no score: as in trec_eval, the
    order is that of falling scores, ties by falling document id.

    Returns:
        Query id -> (document id, score), best first.
    """
    scores: dict[str, dict[str, float]] = {}
    unnamed = False
    for where, row in read_rows(place, _RUN, options):
        unnamed = unnamed or _UNNAMED in row
        query_id, doc_id, score = _scored(where, row)
        documents = scores.setdefault(query_id, {})
        if doc_id in documents:
            raise SourceError(f"{where} ranks document {doc_id!r} twice for query {query_id!r}; remove one of them")
        if not math.isfinite(score):
            raise SourceError(f"{where} has the score {score}; scores must be finite numbers")
        documents[doc_id] = score
    if unnamed and _are_ranks(place, scores):
        scores = {query_id: {doc_id: -rank for doc_id, rank in found.items()} for query_id, found in scores.items()}
    return {
        query_id: sorted(sorted(found.items(), reverse=True), key=lambda row: -row[1])
        for query_id, found in scores.items()
    }


def _scored(where: str, row: Mapping[str, Any]) -> tuple[str, str, float]:
    try:
        value = next((row[name] for name in ("score", _UNNAMED) if name in row), None)
        number = -parse_number(row["rank"]) if value is None else parse_number(value)
        return identifier(row["query_id"]), identifier(row["doc_id"]), number
    except KeyError as error:
        raise _RUN.invalid(where, "it has neither score nor rank") from error
    except (TypeError, ValueError) as error:
        raise _RUN.invalid(where, error) from error


def _are_ranks(place: str, values: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether a third column without a name has ranks: whole numbers that rise in every query."""
    pairs = [pair for documents in values.values() for pair in pairwise(documents.values())]
    whole = all(value.is_integer() for documents in values.values() for value in documents.values())
    if not whole or all(before >= after for before, after in pairs):
        return False
    if all(before < after for before, after in pairs):
        return True
    raise SourceError(
        f"{place} has three columns, and whole numbers in the third that neither rise nor fall in every query, so they "
        "may be ranks or scores; add a header with query_id, doc_id, and score or rank"
    )
