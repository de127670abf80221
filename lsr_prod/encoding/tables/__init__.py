"""Delta tables of immutable Parquet files."""

from lsr_prod.encoding.tables.live_rows import TableFile, live_batches, read_part
from lsr_prod.encoding.tables.part import Part, check_part, count_rows, read_all_rows, write_part
from lsr_prod.encoding.tables.table import Table, create_table, load_table, open_table

__all__ = [
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
