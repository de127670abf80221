"""TREC runs: the rankings of a system in six columns."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lsr_prod.storage.folders import store_file

__all__ = ["Ranking", "write_run"]

Ranking = Sequence[tuple[str, float]]
_NOT_IN_TAG = re.compile(r"[^A-Za-z0-9_.-]+")


def write_run(
    place: str | Path, rankings: Mapping[str, Ranking], tag: str, options: Mapping[str, str] | None = None
) -> None:
    """Write rankings as ``query Q0 document rank score tag``.

    Args:
        place: path or URI of the file, which is replaced; its folder is created if absent.
        rankings: query id -> (document id, score), best first.
        tag: name of the run; characters that the format does not allow become ``_``.
        options: options of the object store.

    Raises:
        StorageError: the store or the disk fails.
        ValueError: an id contains white space, which the format does not allow.
    """
    tag = _NOT_IN_TAG.sub("_", tag)
    lines: list[str] = []
    for query_id, ranking in rankings.items():
        for rank, (doc_id, score) in enumerate(ranking, start=1):
            if len(f"{query_id} {doc_id}".split()) != 2:
                raise ValueError(f"id {query_id!r} or {doc_id!r} contains white space; a TREC run cannot name it")
            lines.append(f"{query_id} Q0 {doc_id} {rank} {score:.6f} {tag}\n")
    store_file(str(place), "".join(lines).encode(), options)
