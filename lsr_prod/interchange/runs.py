"""Runs, the answers of a system: TREC's six columns, and BEIR's JSON ``{query: {document: score}}``."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lsr_prod.errors import SourceError
from lsr_prod.interchange.files import new_file
from lsr_prod.storage.drafts import write_file

__all__ = ["Ranking", "Run", "ranked", "read_beir_run", "read_run", "write_beir_run", "write_run"]

Ranking = Sequence[tuple[str, float]]
Run = dict[str, dict[str, float]]
_NO_TAG = re.compile(r"[^A-Za-z0-9_.-]+")


def write_run(path: Path, rankings: Mapping[str, Ranking], tag: str) -> None:
    """Write rankings as ``query Q0 document rank score tag``.

    Args:
        path: the file; its folder is made if absent.
        rankings: query id -> (document id, score), best first.
        tag: name of the run; what the format cannot hold becomes ``_``.

    Raises:
        ValueError: an id holds white space, which the format cannot hold.
    """
    tag = _NO_TAG.sub("_", tag)
    lines: list[str] = []
    for query_id, ranking in rankings.items():
        for rank, (doc_id, score) in enumerate(ranking, start=1):
            if len(f"{query_id} {doc_id}".split()) != 2:
                raise ValueError(f"id {query_id!r} or {doc_id!r} holds white space; a TREC run cannot name it")
            lines.append(f"{query_id} Q0 {doc_id} {rank} {score:.6f} {tag}\n")
    write_file(path, "".join(lines).encode())


def ranked(run: Mapping[str, Mapping[str, float]]) -> dict[str, list[tuple[str, float]]]:
    """The rankings of a run: by falling score, ties by id."""
    return {
        query_id: sorted(scores.items(), key=lambda scored: (-scored[1], scored[0])) for query_id, scores in run.items()
    }


def read_run(path: Path) -> Run:
    """Read a TREC run; the ranks in it do not count, as evaluators have it.

    Raises:
        SourceError: a line has not six columns, no finite score, or a document that its query has already.
    """
    run: Run = {}
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    query_id, doc_id, score = _parse(line, f"{path}:{number}")
                    scores = run.setdefault(query_id, {})
                    if doc_id in scores:
                        raise SourceError(f"{path}:{number} names {doc_id} of query {query_id} again; remove it")
                    scores[doc_id] = score
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read ({error}); give a TREC run in UTF-8") from error
    return run


def _parse(line: str, place: str) -> tuple[str, str, float]:
    columns = line.split()
    try:
        query_id, _, doc_id, _, score, _ = columns
        value = float(score)
    except ValueError as error:
        raise SourceError(f"{place} is no line of a TREC run; it needs query Q0 document rank score tag") from error
    if not math.isfinite(value):
        raise SourceError(f"{place} has the score {score}; give finite numbers")
    return query_id, doc_id, value


def write_beir_run(path: Path, run: Mapping[str, Mapping[str, float]]) -> None:
    """Write a run as BEIR's JSON; a file that is there is replaced.

    Raises:
        ValueError: a score is NaN or infinite.
    """
    plain = {query_id: {doc_id: float(score) for doc_id, score in scores.items()} for query_id, scores in run.items()}
    with new_file(path, replace=True) as file:
        file.write(json.dumps(plain, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def read_beir_run(path: Path) -> Run:
    """Read BEIR's JSON ``{query: {document: score}}``.

    Raises:
        SourceError: it is something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path} cannot be read ({error}); give the JSON of a run") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path} holds a {type(value).__name__}; give {{query: {{document: score}}}}")
    for query_id, scores in value.items():
        if not isinstance(scores, dict):
            raise SourceError(f"{path}: query {query_id} has a {type(scores).__name__}; give {{document: score}}")
        for doc_id, score in scores.items():
            if type(score) not in (int, float) or not math.isfinite(score):
                raise SourceError(
                    f"{path}: query {query_id} gives document {doc_id} the score {score!r}; give a number"
                )
    return {query_id: {doc_id: float(score) for doc_id, score in scores.items()} for query_id, scores in value.items()}
