"""Queries that both sides of a canary answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lsr_prod.errors import SourceError
from lsr_prod.evaluation import collection


@dataclass(frozen=True, slots=True)
class CanaryQuery:
    """A query that both sides answer.

    Attributes:
        query_id: its id.
        text: the query.
    """

    query_id: str
    text: str


def read_queries(place: str, options: Mapping[str, str] | None = None) -> Iterator[CanaryQuery]:
    """Read queries one after another; see ``evaluation.collection.read_queries`` for the formats.

    Args:
        place: path or URI of the file.
        options: options of the object store.

    Raises:
        SourceError: a line is invalid, or there is none.
        StorageError: the file cannot be read.
    """
    found = False
    for query_id, text in collection.read_queries(place, options):
        found = True
        yield CanaryQuery(query_id, text)
    if not found:
        raise SourceError(f"{place} has no query; give at least one JSON line with _id and text")
