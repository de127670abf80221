"""Pages of a result: the hits after those of the pages before."""

from collections.abc import Sequence

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Ranked
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.request import Request


def check_version(request: Request, version: str) -> None:
    """Raise ``QueryError`` if the page before comes from another version."""
    cursor = request.cursor
    if cursor is not None and cursor.version != version:
        raise QueryError(
            f"search_after is from version {shorten(cursor.version)}, but {shorten(version)} is open now; "
            "start again with the first page"
        )


def select_page(ranked: Sequence[Ranked], request: Request, *, partial: bool) -> Sequence[Ranked]:
    """Return the hits of the page out of all ranked documents."""
    cursor = request.cursor
    if cursor is None:
        return ranked[request.offset : request.reach]
    for place, row in enumerate(ranked):
        if row[1] == cursor.doc_id:
            return ranked[place + 1 : place + 1 + request.k]
    if not partial:
        raise QueryError("search_after belongs to another query; give the query and the options of the page before")
    if request.sort is not None:
        return []
    return [row for row in ranked if row[:2] > (-cursor.score, cursor.doc_id)][: request.k]
