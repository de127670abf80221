"""Queries of the gates: golden queries with the documents that they must find, and canary queries."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import SourceError
from lsr_prod.operations.canary import CanaryQuery, read_queries
from lsr_prod.storage.folders import open_text

_K = 10


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query that must find some documents.

    Attributes:
        query_id: its id.
        text: the query.
        must: ids of the documents.
        k: they have to be among so many hits.
    """

    query_id: str
    text: str
    must: tuple[str, ...]
    k: int


def read_golden(place: str, options: Mapping[str, str]) -> list[GoldenQuery]:
    """Read golden queries."""
    return [
        GoldenQuery(str(row["_id"]), row["text"], tuple(map(str, row["must"])), int(row.get("k", _K)))
        for row in _golden_rows(place, options)
    ]


def read_canaries(place: str, options: Mapping[str, str], sample: int) -> list[CanaryQuery]:
    """Return at most ``sample`` queries, at even distances in the file."""
    queries = list(read_queries(place, options))
    count = min(sample, len(queries))
    return [queries[i * len(queries) // count] for i in range(count)]


def _golden_rows(place: str, options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    found = 0
    with open_text(place, options) as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                fine = isinstance(row["text"], str) and bool(row["_id"]) and int(row.get("k", _K)) > 0
                fine = fine and isinstance(row["must"], list) and len(row["must"]) > 0
            except (ValueError, KeyError, TypeError):
                fine = False
            if not fine:
                raise SourceError(f"{place}:{number} is not a query of a gate; see section gates in docs/operations.md")
            found += 1
            yield row
    if not found:
        raise SourceError(f"{place} has no query; give some, or remove the setting of the gate")
