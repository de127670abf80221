"""Delta tables of immutable Parquet files."""

from lsr_prod.tables.deletion_vector import DeletionVector
from lsr_prod.tables.file_table import TableFile
from lsr_prod.tables.live_rows import live_batches, read_part
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
