"""Delta tables of immutable Parquet files.

The names of the package are imported on first use: rows and schemas need no deltalake.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
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

_LIVE_ROWS, _PART, _TABLE = (f"{__name__}.{module}" for module in ("live_rows", "part", "table"))

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("TableFile", "live_batches", "read_part"), _LIVE_ROWS),
        **dict.fromkeys(("Part", "check_part", "count_rows", "read_all_rows", "write_part"), _PART),
        **dict.fromkeys(("Table", "create_table", "load_table", "open_table"), _TABLE),
    },
)
