"""Delta tables of immutable Parquet files.

The names of the package are imported on first use: rows and schemas need no deltalake.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.encoding.tables.live_rows import TableFile, live_batches, read_part
    from lsr_prod.encoding.tables.part import Part, check_part, count_rows, read_all_rows, write_part
    from lsr_prod.encoding.tables.table import LogEntry, Table, create_table, load_table, open_table
    from lsr_prod.storage.deletion_vector import DeletionVector

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
        "LogEntry": "lsr_prod.encoding.tables.table",
        "Part": "lsr_prod.encoding.tables.part",
        "Table": "lsr_prod.encoding.tables.table",
        "TableFile": "lsr_prod.encoding.tables.live_rows",
        "check_part": "lsr_prod.encoding.tables.part",
        "count_rows": "lsr_prod.encoding.tables.part",
        "create_table": "lsr_prod.encoding.tables.table",
        "live_batches": "lsr_prod.encoding.tables.live_rows",
        "load_table": "lsr_prod.encoding.tables.table",
        "open_table": "lsr_prod.encoding.tables.table",
        "read_all_rows": "lsr_prod.encoding.tables.part",
        "read_part": "lsr_prod.encoding.tables.live_rows",
        "write_part": "lsr_prod.encoding.tables.part",
    },
)
