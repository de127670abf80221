"""Tables of immutable Parquet files: one protocol, two sinks: Delta, and plain Parquet files with a log of our own."""

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
