"""Old entries of the log of a table: commits before a checkpoint from which every kept version can be opened."""

import re
from collections.abc import Collection, Sequence

from lsr_prod.storage.local import Entry
from lsr_prod.tables import Table, open_table

_LOG = re.compile(r"^(?:_delta_log|_manifest)/(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d+\.\d+\.parquet)$")
_CHECKPOINT = "checkpoint.parquet"


def oldest_kept_version(table: Table, horizon: float) -> int:
    """Return the version that was the newest one at ``horizon``, or the first one that is in the log."""
    commits = [entry for entry in table.log() if entry.version <= table.version]
    # The version before the first young commit was the newest one until then.
    young = [entry.version for entry in commits if entry.committed_at >= horizon]
    first = min((entry.version for entry in commits), default=table.version)
    return max(first, min(young, default=table.version + 1) - 1)


def find_old_log(table: Table, entries: Sequence[Entry], versions: Collection[int]) -> list[Entry]:
    """Return the commits and checkpoints that no kept version needs."""
    found = [(entry, int(match[1]), match[2]) for entry in entries if (match := _LOG.match(entry.name))]
    commits = {number for _, number, ending in found if ending == "json"}
    oldest = min(versions)
    checkpoints = {number for _, number, ending in found if ending == _CHECKPOINT and number <= oldest}
    base = max(checkpoints & commits, default=0)
    old = [entry for entry, number, _ in found if number < base]
    if old:
        snapshot = open_table(table.store, base)  # it must be readable without them
        assert snapshot is not None
        snapshot.file_table()
    return old
