"""Read a sparse table as a Ray dataset."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import ray.data

from lsr_prod.cluster.workers import group_by_size
from lsr_prod.encoding.tables import live_batches, live_rows, load_table
from lsr_prod.storage import Store, folders

_GROUP_BYTES = 128_000_000  # of parts that a task reads
_BATCH_ROWS = 16_384


def read_sparse_table(
    table: str, options: Mapping[str, str] | None = None, *, version: int | None = None
) -> ray.data.Dataset:
    """Return the documents of a sparse table as a dataset.

    Its columns are ``doc_id``, ``bucket``, ``terms``, ``impacts``, ``content_hash``, and the stored fields; rows that
    the table has deleted are left out. The weight of a term is its impact times the property ``lsr_prod.impact_step``.

    Args:
        table: folder or URI.
        options: options of the object store.
        version: version of the table; default the newest.

    Raises:
        ArtifactError: there is no table, or a part is damaged.
        FormatVersionError: another program or release wrote the table.

    Examples:
        >>> from lsr_prod.ray_data import read_sparse_table
        >>> read_sparse_table("table").filter(expr="bucket < 8").count()  # doctest: +SKIP
        1204
    """
    snapshot = load_table(Store(folders.absolute(table), dict(options or {})), version)
    properties = snapshot.sparse_properties
    schema = pa.schema([field for field in properties.schema if field.name not in {"content_key", "source_file"}])
    files = snapshot.file_table()
    if not files.num_rows:
        return ray.data.from_arrow(schema.empty_table())
    groups = [*group_by_size(range(files.num_rows), files["size"].to_numpy().__getitem__, _GROUP_BYTES)]
    store = snapshot.store

    names = [name for name in schema.names if name != "bucket"]

    def read(batch: pa.Table) -> Iterator[pa.Table]:
        for file in live_rows.to_files(batch):
            bucket = pa.scalar(int(file.partition["bucket"] or 0), pa.int32())
            for rows in map(pa.table, live_batches(store, file, names, _BATCH_ROWS)):
                yield rows.append_column("bucket", pa.repeat(bucket, rows.num_rows)).select(schema.names).cast(schema)

    blocks = ray.data.from_arrow([files.slice(group[0], len(group)) for group in groups])
    return blocks.map_batches(read, batch_size=None, batch_format="pyarrow")
