"""Ray Data pipelines: encode documents in ``Dataset.map_batches``, and read and write sparse tables.

``SparseEncode`` encodes batches, ``write_sparse_table`` writes them as the table that the encode job would write, and
``read_sparse_table`` reads a table. The sections ``source`` and ``encode`` of a deployment describe columns, bundle,
table and actors, as they do for the encode job.

The names of the package are imported on first use: ``import lsr_prod`` does not import Ray.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.ray_data.read import read_sparse_table
    from lsr_prod.ray_data.staging import SparseEncode
    from lsr_prod.ray_data.write import TableWrite, write_sparse_table

__all__ = ["SparseEncode", "TableWrite", "read_sparse_table", "write_sparse_table"]

__getattr__ = lazy_names(
    __name__,
    {
        "SparseEncode": "lsr_prod.ray_data.staging",
        "TableWrite": "lsr_prod.ray_data.write",
        "read_sparse_table": "lsr_prod.ray_data.read",
        "write_sparse_table": "lsr_prod.ray_data.write",
    },
)
