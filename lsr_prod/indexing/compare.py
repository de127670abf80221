"""Compare the table with the version of it that an index version was built from."""

from dataclasses import dataclass

from lsr_prod.formats.index import IndexVersion
from lsr_prod.indexing.changes import RowChange, changed_parts, changed_rows, row_schema
from lsr_prod.indexing.plan import IndexPlan, digest_parts
from lsr_prod.indexing.workers import Workers
from lsr_prod.tables import Table, open_table


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of the table since an index version was built.

    Attributes:
        base_parts: ``table_parts`` of the index version; "" if the table was not compared with one.
        rows: changed documents, by rising bucket.
        unknown: why the changed documents are not known; "" if they are.
    """

    base_parts: str = ""
    rows: tuple[RowChange, ...] = ()
    unknown: str = ""

    @property
    def upserts(self) -> int:
        """Documents that are new or changed."""
        return sum(len(change.upserts) for change in self.rows)

    @property
    def deletes(self) -> int:
        """Documents that the table no longer has."""
        return sum(len(change.deletes) for change in self.rows)


def compare_table(plan: IndexPlan, base: IndexVersion, max_delta: float, workers: Workers) -> TableChanges:
    """Find the documents that changed since ``base`` was built; stop when they are too many for a delta shard."""
    table, base_parts = plan.snapshot, base.table_parts
    if base_parts == plan.table_parts:
        return TableChanges(base_parts)
    old = _open_base(base, table)
    parts = changed_parts(old, table) if old else []
    if old is None or any(table.store.entry(path) is None for part in parts for path in part.old_files):
        reason = f"the table no longer has version {base.table_version}, which the index was built from"
        return TableChanges(base_parts, unknown=reason)
    schema = row_schema(table, plan.properties.stored_fields)
    tasks = [(table.store, part, schema) for part in parts]
    rows: list[RowChange] = []
    left = max_delta * sum(shard.documents for shard in base.shards)
    for _, change in workers.run(changed_rows, tasks, size=sum(part.size for part in parts)):
        rows.append(change)
        left -= len(change.upserts) + len(change.deletes)
        if left < 0:
            return TableChanges(base_parts, unknown=f"more than index.max_delta={max_delta} of the documents changed")
    return TableChanges(base_parts, tuple(sorted(rows, key=lambda change: change.bucket)))


def reason_to_rebuild(base: IndexVersion, changes: TableChanges, rows: int, max_delta: float) -> str:
    """Return why all shards have to be built again, or "" if a delta shard can hold the changes."""
    if changes.unknown:
        return changes.unknown
    held = changes.upserts + sum(shard.documents for shard in base.shards)
    outside = changes.upserts + sum(shard.documents for shard in base.shards if shard.role == "delta")
    if held - rows + outside > max_delta * held:
        return f"delta shards and tombstones would hold more than index.max_delta={max_delta}"
    return ""


def _open_base(base: IndexVersion, table: Table) -> Table | None:
    """Return the table at the version that ``base`` was built from; None if that version is deleted or differs."""
    if base.table_version not in {entry.version for entry in table.log()}:
        return None
    old = open_table(table.store, base.table_version)
    return old if old is not None and digest_parts(old) == base.table_parts else None
