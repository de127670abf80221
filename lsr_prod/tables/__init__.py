"""Delta tables of immutable Parquet files.

The names of the package are imported on first use: rows and schemas need no deltalake.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.storage.deletion_vector import DeletionVector
    from lsr_prod.tables.live_rows import TableFile, live_batches, read_part
    from lsr_prod.tables.part import Part, check_part, count_rows, read_all_rows, write_part
    from lsr_prod.tables.table import LogEntry, Table, create_table, load_table, open_table

__all__ = [
    "DeletionVector",
    "LogEntry",
    "Part",
    "Table",
    "TableFile",
    "check_part",
    "count_rows",
    "create_table",
    "live_batches",
    "load_table",
    "open_table",
    "read_all_rows",
    "read_part",
    "write_part",
]

__getattr__ = lazy_names(
    __name__,
    {
        "DeletionVector": "lsr_prod.storage.deletion_vector",
        "LogEntry": "lsr_prod.tables.table",
        "Part": "lsr_prod.tables.part",
        "Table": "lsr_prod.tables.table",
        "TableFile": "lsr_prod.tables.live_rows",
        "check_part": "lsr_prod.tables.part",
        "count_rows": "lsr_prod.tables.part",
        "create_table": "lsr_prod.tables.table",
        "live_batches": "lsr_prod.tables.live_rows",
        "load_table": "lsr_prod.tables.table",
        "open_table": "lsr_prod.tables.table",
        "read_all_rows": "lsr_prod.tables.part",
        "read_part": "lsr_prod.tables.live_rows",
        "write_part": "lsr_prod.tables.part",
    },
)
