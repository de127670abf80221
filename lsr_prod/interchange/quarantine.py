"""Quarantine of an import: bad rows are written and counted, or end the import if their reason is refused."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from lsr_prod.corpus.rows import BadRow
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, is_remote
from lsr_prod.tables.quarantine import BadRowWriter

log = get_log(__name__)

_LOGGED = 5


def quarantine_store(field: str, given: str | None, output: Store) -> Store:
    """Return the folder of the quarantine of a job."""
    uri = given or f"{output.uri.rstrip('/')}_quarantine"
    if not is_remote(uri):
        uri = str(Path(uri).absolute())
        if Path(uri).is_file():
            raise ConfigError(field, f"{uri} is a file", "give a folder")
    return Store(uri, output.options)


class ImportQuarantine:
    """Bad rows of one import."""

    def __init__(self, store: Store, plan: str, refused: Collection[str] = ()) -> None:
        self._store, self._refused = store, frozenset(refused)
        self._writer = BadRowWriter(store, plan, 0)

    @property
    def reasons(self) -> Counter[str]:
        """Number of rows by reason."""
        return self._writer.reasons

    def add(self, row: BadRow, *, ordinal: int, key: int, source: str, position: int) -> None:
        """Add a bad row; the arguments are those of ``BadRowWriter.add``. The first rows are logged."""
        if row.reason in self._refused:
            for part in self._writer.parts:
                self._store.delete(part.path)
            raise SourceError(
                f"{source} at {position}: {row.reason}, {row.detail}; nothing was written; fix the file, or set "
                "vectors.unknown_terms or vectors.bad_weights to quarantine"
            )
        self._writer.add(row, ordinal=ordinal, key=key, source=source, position=position)
        if self.reasons.total() <= _LOGGED:
            fields = {"source": source, "position": position, "reason": row.reason, "detail": row.detail}
            log.warning("quarantined", extra={"fields": {**fields, "doc_id": row.doc_id}})

    def flush(self) -> None:
        """Write the rows that are still in memory."""
        self._writer.flush()
