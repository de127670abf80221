"""The sparse table as the encode job sees it: made once with its properties, opened again, digested."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lsr_prod.encoding.plan import PROTOCOL_FOLDER
from lsr_prod.errors import ConfigError, LineageError
from lsr_prod.formats.table import TableProperties, sparse_schema
from lsr_prod.storage import Store

__all__ = ["check_table", "create_table", "files_by_bucket", "open_table", "table_digest"]

PLAN_PROPERTY = "lsr_prod.plan"


def open_table(store: Store) -> DeltaTable | None:
    """The newest snapshot, or None where no table is."""
    if not DeltaTable.is_deltatable(store.location, storage_options=store.delta_options):
        return None
    return DeltaTable(store.location, storage_options=store.delta_options)


def create_table(
    store: Store, schema: pa.Schema, partition_by: list[str], configuration: Mapping[str, str]
) -> DeltaTable:
    """Open the table, and make it if it is absent; of two that make it at once the second opens the first's."""
    found = open_table(store)
    if found is None:
        try:
            DeltaTable.create(
                store.location,
                schema,
                mode="error",
                partition_by=partition_by,
                configuration=dict(configuration),
                storage_options=store.delta_options,
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            # Only a table that is now there makes this no failure.
            if open_table(store) is None:
                raise
        found = open_table(store)
    assert found is not None
    return found


def create_sparse_table(store: Store, properties: TableProperties, plan: str) -> DeltaTable:
    """``create_table`` with the properties of this plan's sparse table."""
    configuration = {**properties.to_delta(), PLAN_PROPERTY: plan}
    return create_table(
        store, sparse_schema(properties.stored_fields, properties.impact_bits), ["bucket"], configuration
    )


def check_table(store: Store, wanted: TableProperties, plan: str) -> TableProperties | None:
    """Refuse a table that this plan does not belong to.

    Args:
        store: the table's folder.
        wanted: what this run would write; its ``impact_step`` is not compared.
        plan: digest of the plan.

    Returns:
        The table's own properties, or None where no table is.

    Raises:
        ConfigError: the folder holds something else, or the table was made with other settings or from another source.
        LineageError: another bundle made the table.
        FormatVersionError: the table was written in another format.
    """
    table = open_table(store)
    if table is None:
        foreign = [name for name in store.names() if not name.startswith(f"{PROTOCOL_FOLDER}/")]
        if foreign:
            raise ConfigError(
                "encode.table", f"{store.uri} holds {foreign[0]} and is no Delta table", "give a new folder"
            )
        return None
    configuration = {key: str(value) for key, value in table.metadata().configuration.items()}
    found = TableProperties.from_delta(configuration)
    if (found.bundle_digest, found.vocabulary_sha256) != (wanted.bundle_digest, wanted.vocabulary_sha256):
        raise LineageError(
            f"{store.uri} was made by bundle {found.bundle_digest[:12]}, encode.bundle is {wanted.bundle_digest[:12]}; "
            "give that bundle or a new encode.table"
        )
    for name in ("store_k", "impact_bits", "buckets", "stored_fields"):
        if getattr(found, name) != getattr(wanted, name):
            section = "source" if name == "stored_fields" else "encode"
            raise ConfigError(
                f"{section}.{name}",
                f"{store.uri} was made with {getattr(found, name)}, not {getattr(wanted, name)}",
                "set it so, or give a new encode.table",
            )
    if configuration.get(PLAN_PROPERTY) != plan:
        raise ConfigError(
            "encode.table",
            f"{store.uri} was made from another source or with other settings of it",
            "give a new table folder",
        )
    return found


def files_by_bucket(table: DeltaTable) -> dict[int, list[str]]:
    """Paths of the committed parts of every bucket."""
    found: dict[int, list[str]] = defaultdict(list)
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        found[int(action["partition.bucket"])].append(str(action["path"]))
    return {bucket: sorted(paths) for bucket, paths in found.items()}


def table_digest(table_uri: str, options: dict[str, str] | None = None, *, version: int | None = None) -> str:
    """Digest of what a sparse table says, whatever its files are called and however its rows lie.

    The sum modulo 2**256 of the sha256 of every row's doc_id, terms, impacts and content_hash; a row that came twice
    changes it, as a set's digest would not. Memory is bounded by one batch of rows.

    Args:
        table_uri: the table.
        options: options of the object store.
        version: version of the table; default the newest.

    Returns:
        64 hex digits.
    """
    store = Store(table_uri, options or {})
    table = DeltaTable(store.location, version=version, storage_options=store.delta_options)
    total = 0
    for paths in files_by_bucket(table).values():
        for path in paths:
            total += sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in _rows(store, path))
    return f"{total % (1 << 256):064x}"


def _rows(store: Store, path: str) -> Iterator[bytes]:
    columns = ["doc_id", "terms", "impacts", "content_hash"]
    with store.open_reader(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=4096, columns=columns):
            terms, impacts = batch["terms"], batch["impacts"]
            bounds = terms.offsets.to_numpy()
            term_values, impact_values = terms.values.to_numpy(), impacts.values.to_numpy()
            ids, hashes = batch["doc_id"].to_pylist(), batch["content_hash"].to_pylist()
            for i, (doc_id, content) in enumerate(zip(ids, hashes, strict=True)):
                row = slice(bounds[i], bounds[i + 1])
                fields = (
                    doc_id.encode(),
                    term_values[row].astype("<i4").tobytes(),
                    impact_values[row].astype("<i4").tobytes(),
                    content.encode(),
                )
                # Lengths first, so that no two different rows have the same bytes.
                yield b"".join(len(field).to_bytes(8, "big") + field for field in fields)
