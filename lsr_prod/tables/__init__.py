"""Tables of immutable Parquet files: one protocol, two sinks: Delta, and plain Parquet files with a log of our own.

The names of the package are imported on first use: rows and schemas need no deltalake.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.tables.deletion_vector import DeletionVector
    from lsr_prod.tables.file_table import TableFile
    from lsr_prod.tables.live_rows import live_batches, read_part
    from lsr_prod.tables.open import SINKS, Sink, create_table, open_table
    from lsr_prod.tables.part import Part, check_part, count_rows, read_all_rows, write_part
    from lsr_prod.tables.table import LogEntry, Table

__all__ = [
    "SINKS",
    "DeletionVector",
    "LogEntry",
    "Part",
    "Sink",
    "Table",
    "TableFile",
    "check_part",
    "count_rows",
    "create_table",
    "live_batches",
    "open_table",
    "read_all_rows",
    "read_part",
    "write_part",
]

__getattr__ = lazy_names(
    __name__,
    {
        "SINKS": "lsr_prod.tables.open",
        "DeletionVector": "lsr_prod.tables.deletion_vector",
        "LogEntry": "lsr_prod.tables.table",
        "Part": "lsr_prod.tables.part",
        "Sink": "lsr_prod.tables.open",
        "Table": "lsr_prod.tables.table",
        "TableFile": "lsr_prod.tables.file_table",
        "check_part": "lsr_prod.tables.part",
        "count_rows": "lsr_prod.tables.part",
        "create_table": "lsr_prod.tables.open",
        "live_batches": "lsr_prod.tables.live_rows",
        "open_table": "lsr_prod.tables.open",
        "read_all_rows": "lsr_prod.tables.part",
        "read_part": "lsr_prod.tables.live_rows",
        "write_part": "lsr_prod.tables.part",
    },
)
