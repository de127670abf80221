"""``Cursor``: the last hit of a page, from which the next page of the same query continues."""

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import shorten

_MAX_TOKEN = 1 << 16  # characters


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last hit of a page.

    Attributes:
        version: sha256 of the index version of the page.
        score: score of the hit.
        doc_id: its id.
        rank: its place in the whole result, from 1: the number of hits of all pages so far.
    """

    version: str
    score: float
    doc_id: str
    rank: int

    @property
    def token(self) -> str:
        """The cursor as letters, digits, ``-`` and ``_``; callers treat it as opaque."""
        values = [self.version, self.score.hex(), self.doc_id, self.rank]
        return base64.urlsafe_b64encode(json.dumps(values, ensure_ascii=False).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, token: Any) -> "Cursor":
        """Read a token."""
        if isinstance(token, str) and token.isascii() and len(token) <= _MAX_TOKEN:
            padding = "=" * (-len(token) % 4)
            try:
                match json.loads(base64.b64decode(token + padding, altchars=b"-_", validate=True)):
                    case [str(version), str(score), str(doc_id), int(rank)] if rank > 0 and not isinstance(rank, bool):
                        cursor = cls(version, float.fromhex(score), doc_id, rank)
                        if math.isfinite(cursor.score):
                            return cursor
            except (binascii.Error, ValueError, OverflowError, RecursionError):
                pass  # one message for everything that is not a token
        raise QueryError(f"search_after={shorten(token)} is not a token; give next_page of the page before")
