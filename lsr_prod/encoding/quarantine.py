"""The quarantine table: every row that is no document, with its reason, where it stood and what it looked like.

A Delta table partitioned by plan and wave, so that a repeated attempt at a wave replaces what the first one wrote.
"""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lsr_prod.encoding.parts import Part, write_part
from lsr_prod.encoding.rows import RAW_LIMIT
from lsr_prod.storage import Store

__all__ = ["QUARANTINE_SCHEMA", "committed_files", "quarantine_folder", "quarantined_by_reason", "write_quarantine"]

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("plan", pa.string(), nullable=False),
        pa.field("wave", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string()),
        pa.field("raw", pa.string()),
    ],
    metadata={"raw": f"the first {RAW_LIMIT} bytes of the row; bytes that are no UTF-8 are U+FFFD"},
)
PARTITION = ("plan", "wave")


def quarantine_folder(plan: str, wave: int) -> str:
    """Where the parts of a wave lie inside the table."""
    return f"plan={plan}/wave={wave}"


def write_quarantine(store: Store, plan: str, wave: int, rows: pa.Table, locations: Sequence[str]) -> Part:
    """Write bad rows (of ``rows.row_schema``) as one part.

    Args:
        store: the quarantine table's folder.
        plan: digest of the plan.
        wave: number of the wave.
        rows: every row has a reason.
        locations: path or URI of each source file.
    """
    rows = rows.sort_by([("file", "ascending"), ("position", "ascending")])
    sources = pa.array([locations[i] for i in rows["file"].to_pylist()], pa.string())
    columns = {**{name: rows[name] for name in ("reason", "detail", "position", "doc_id", "raw")}, "source": sources}
    fields = [field for field in QUARANTINE_SCHEMA if field.name not in PARTITION]
    table = pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))
    return write_part(store, quarantine_folder(plan, wave), table)


def committed_files(table: DeltaTable, plan: str, wave: int | None = None) -> list[str]:
    """Paths of the committed parts of a plan, or of one of its waves."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return sorted(
        str(action["path"])
        for action in actions
        if action["partition.plan"] == plan and wave in (None, action["partition.wave"])
    )


def quarantined_by_reason(store: Store, table: DeltaTable, plan: str, waves: int) -> Counter[str]:
    """Rows of the first ``waves`` waves of a plan, counted by reason; one part is in memory at a time."""
    counts: Counter[str] = Counter()
    for wave in range(waves):
        for path in committed_files(table, plan, wave):
            with store.open_reader(path) as file:
                counts.update(pq.read_table(file, columns=["reason"])["reason"].to_pylist())
    return counts
