"""What is not taken, written to a JSONL file while it is counted."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from lsr_prod.corpus.rows import BadRow
from lsr_prod.errors import SourceError
from lsr_prod.interchange.files import new_file

__all__ = ["Quarantine", "open_quarantine"]

log = logging.getLogger(__name__)

_LOGGED = 5


@dataclass(frozen=True, slots=True)
class Quarantine:
    """An open quarantine file: one object ``{source, position, reason, detail, doc_id, raw}`` a line.

    Attributes:
        file: where the lines go.
        refused: reasons that end the whole work.
        reasons: how many of each.
    """

    file: IO[bytes]
    refused: Collection[str]
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, source: str, position: int, bad: BadRow) -> None:
        """Write what stands at ``position`` of ``source`` (byte of a text format, row of a matrix).

        Raises:
            SourceError: its reason is refused.
        """
        if bad.reason in self.refused:
            raise SourceError(
                f"{source} at {position}: {bad.reason}, {bad.detail}; nothing was written; mend it, or let "
                "vectors.unknown_terms or vectors.bad_weights be quarantine"
            )
        self.reasons[bad.reason] += 1
        entry = {
            "source": source,
            "position": position,
            "reason": bad.reason,
            "detail": bad.detail,
            "doc_id": bad.doc_id,
            "raw": bad.raw,
        }
        self.file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        if self.reasons.total() <= _LOGGED:
            log.warning("quarantined", extra={"fields": {name: entry[name] for name in entry if name != "raw"}})


@contextmanager
def open_quarantine(path: Path, refused: Collection[str] = ()) -> Iterator[Quarantine]:
    """A quarantine that gets its name once the block ends well, in the place of a former one.

    Raises:
        StorageError: the disk fails.
    """
    with new_file(path, replace=True) as file:
        yield Quarantine(file, frozenset(refused))
