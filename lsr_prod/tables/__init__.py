"""Tables of immutable Parquet files behind one protocol, in two sinks: Delta, and plain Parquet with our own log."""

from lsr_prod.tables.open import SINKS, Sink, create_table, open_table
from lsr_prod.tables.part import Part, check_part, write_part
from lsr_prod.tables.table import LogEntry, Table, TableFile

__all__ = [
    "SINKS",
    "LogEntry",
    "Part",
    "Sink",
    "Table",
    "TableFile",
    "check_part",
    "create_table",
    "open_table",
    "write_part",
]
