"""The quarantine table: every row that is no document, with its reason, where it stood and what it looked like.

A table partitioned by plan and wave, so that a repeated attempt at a wave replaces what the first one wrote.
"""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.corpus.rows import RAW_LIMIT
from lsr_prod.storage import Store
from lsr_prod.tables import Part, Sink, Table, create_table, open_table, write_part

__all__ = [
    "DUPLICATE",
    "PARTITION",
    "QUARANTINE_SCHEMA",
    "committed_files",
    "create_quarantine",
    "duplicates_elsewhere",
    "quarantine_folder",
    "quarantined_by_reason",
    "write_quarantine",
]

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("plan", pa.string(), nullable=False),
        pa.field("wave", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string()),
        pa.field("source_file", pa.int64(), nullable=False),
        pa.field("raw", pa.string()),
    ],
    metadata={"raw": f"the first {RAW_LIMIT} bytes of the row; bytes that are no UTF-8 are U+FFFD"},
)
PARTITION = ("plan", "wave")
DUPLICATE = "duplicate_id"


def quarantine_folder(plan: str, wave: int) -> str:
    """Where the parts of a wave lie inside the table."""
    return f"plan={plan}/wave={wave}"


def create_quarantine(store: Store, sink: Sink) -> Table:
    """Open the quarantine table, and make it if it is absent."""
    return create_table(store, sink, QUARANTINE_SCHEMA, PARTITION, {})


def write_quarantine(store: Store, plan: str, wave: int, rows: pa.Table) -> Part:
    """Write bad rows (of ``rows.row_schema``) as one part.

    Args:
        store: the quarantine table's folder.
        plan: digest of the plan.
        wave: number of the wave.
        rows: every row has a reason.
    """
    rows = rows.sort_by([("file", "ascending"), ("position", "ascending")])
    fields = [field for field in QUARANTINE_SCHEMA if field.name not in PARTITION]
    rows = rows.rename_columns({"source_key": "source_file"})
    table = pa.table([rows[field.name] for field in fields], schema=pa.schema(fields))
    return write_part(store, quarantine_folder(plan, wave), table)


def duplicates_elsewhere(store: Store, plan: str, doc_ids: pa.Array, present: pa.Array) -> list[tuple[str, str]]:
    """Duplicates that earlier plans quarantined and that would be documents if the rows that came first were gone.

    Args:
        store: the quarantine table's folder.
        plan: digest of the plan that is encoded; the rows of an id meet in one of its cells.
        doc_ids: ids whose document leaves the table.
        present: int64, keys of the source files of today.

    Returns:
        (doc_id, location of the file) of some of them.
    """
    table = open_table(store)
    columns = ["reason", "doc_id", "source_file", "source"]
    for file in table.files() if table else []:
        if file.partition["plan"] == plan:
            continue
        with store.open_reader(file.path) as data:
            rows = pq.read_table(data, columns=columns)
        again = pc.and_(pc.equal(rows["reason"], DUPLICATE), pc.is_in(rows["doc_id"], value_set=doc_ids))
        found = rows.filter(pc.and_(again, pc.is_in(rows["source_file"], value_set=present)))
        if found.num_rows:
            return list(zip(found["doc_id"].to_pylist(), found["source"].to_pylist(), strict=True))
    return []


def committed_files(table: Table, plan: str, wave: int | None = None) -> list[str]:
    """Paths of the committed parts of a plan, or of one of its waves."""
    return [file.path for file in table.files() if _is_of(file.partition, plan, wave)]


def quarantined_by_reason(store: Store, plan: str, waves: int) -> Counter[str]:
    """Rows of the first ``waves`` waves of a plan, counted by reason; one part is in memory at a time."""
    counts: Counter[str] = Counter()
    table = open_table(store)
    for file in table.files() if table else []:
        if _is_of(file.partition, plan, None) and int(file.partition["wave"] or 0) < waves:
            with store.open_reader(file.path) as data:
                counts.update(pq.read_table(data, columns=["reason"])["reason"].to_pylist())
    return counts


def _is_of(partition: Mapping[str, str | None], plan: str, wave: int | None) -> bool:
    return partition["plan"] == plan and (wave is None or partition["wave"] == str(wave))
