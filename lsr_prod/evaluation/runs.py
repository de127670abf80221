"""Runs: the rankings of a system, as TREC files of six columns, and as the JSON that BEIR and other tools write."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod.encoding.interchange.jsonl import numbered_lines
from lsr_prod.errors import SourceError
from lsr_prod.logs import get_log
from lsr_prod.storage.folders import store_file

log = get_log(__name__)
Ranking = Sequence[tuple[str, float]]
_NOT_IN_TAG = re.compile(r"[^A-Za-z0-9_.-]+")
_Row = tuple[str, str, float]  # query id, document id, score


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
        lines = [f"{query} Q0 {doc_id} {rank} {score:.6f} {tag}\n" for query, rank, (doc_id, score) in rows]
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

    Formats: TREC (``query Q0 document rank score tag``); JSON ``{query: {document: score}}`` in one value or one per
    line; JSON lines with ``query_id``, ``doc_id`` and ``score``. Ranks are not read: as in trec_eval, the order is that
    of falling scores, ties by falling document id.

    Returns:
        Query id -> (document id, score), best first.
    """
    scores: dict[str, dict[str, float]] = {}
    for where, (query_id, doc_id, score) in _rows(place, options):
        documents = scores.setdefault(query_id, {})
        if doc_id in documents:
            raise SourceError(f"{where} ranks document {doc_id!r} twice for query {query_id!r}; remove one of them")
        if not math.isfinite(score):
            raise SourceError(f"{where} has the score {score}; scores must be finite numbers")
        documents[doc_id] = score
    return {
        query_id: sorted(sorted(found.items(), reverse=True), key=lambda row: -row[1])
        for query_id, found in scores.items()
    }


def _rows(place: str, options: Mapping[str, str] | None) -> Iterator[tuple[str, _Row]]:
    """Yield the place of every row in the file, and the row."""
    lines = numbered_lines(place, options)
    for number, line in lines:
        where = f"{place}:{number}"
        if not line.lstrip().startswith("{"):
            yield where, _trec_row(where, line)
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            if len(columns := line.split()) == 6 and columns[1] == "Q0":  # the id of a query may start so, too
                yield where, _trec_row(where, line)
                continue
            if number != 1:
                raise _invalid(where) from None
            # The first line is not a value of its own, so the file is one value on several lines.
            value, where = _whole(place, "\n".join([line, *(more for _, more in lines)])), place
        for row in _json_rows(where, value):
            yield where, row


def _trec_row(where: str, line: str) -> _Row:
    columns = line.split()
    try:
        query_id, _, doc_id, _, score, _ = columns
        return query_id, doc_id, float(score)
    except ValueError as error:
        raise _invalid(where) from error


def _json_rows(where: str, value: Any) -> Iterator[_Row]:
    try:
        if "query_id" in value and "doc_id" in value:
            yield str(value["query_id"]), str(value["doc_id"]), float(value["score"])
            return
        for query_id, documents in value.items():
            for doc_id, score in documents.items():
                yield query_id, doc_id, float(score)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(where) from error


def _whole(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        form = "{query: {document: score}}"
        raise SourceError(f"{place}:{error.lineno} is not JSON ({error.msg}); give {form}") from error


def _invalid(where: str) -> SourceError:
    return SourceError(
        f"{where} is not a line of a run; give six columns (query Q0 document rank score tag), JSON "
        "{query: {document: score}}, or JSON with query_id, doc_id and score"
    )
