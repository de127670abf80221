"""The sparse table of the encode job: create it with its properties, check it, digest it."""

import json

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.tables import live_rows, part
from lsr_prod.encoding.tables.table import Table, create_table, load_table, open_table
from lsr_prod.errors import ConfigError, LineageError
from lsr_prod.storage import Store, disk
from lsr_prod.storage.formats.table_format import TableProperties

PROTOCOL_FOLDER = "_lsr_prod"
"""Folder inside the table's folder with its plans, epochs and markers."""
PLAN_PROPERTY = "lsr_prod.plan"
"""Table property with the digest of the first plan."""


def create_sparse_table(store: Store, properties: TableProperties, plan: str) -> Table:
    """Open the sparse table, or create it if it does not exist."""
    return create_table(store, properties.schema, ["bucket"], {**properties.to_delta(), PLAN_PROPERTY: plan})


def check_first_plan(table: Table, plan: str) -> None:
    """Check that this plan created the table: another first run may have created it at the same time."""
    if table.properties.get(PLAN_PROPERTY) != plan:
        raise ConfigError(
            "encode.table",
            f"{table.store.uri} was created at the same time by another run, with another source or other settings",
            "give a new table folder",
        )


def check_table(store: Store, wanted: TableProperties) -> TableProperties | None:
    """Refuse a table that this run cannot write to.

    Returns:
        The properties of the table, or None if there is no table.
    """
    table = open_table(store)
    if table is None:
        require_new_folder("encode.table", store, but=f"{PROTOCOL_FOLDER}/")
        return None
    found = table.sparse_properties
    if (found.bundle_digest, found.vocabulary_sha256) != (wanted.bundle_digest, wanted.vocabulary_sha256):
        raise LineageError(
            f"{store.uri} was made by bundle {found.bundle_digest[:12]}, encode.bundle is {wanted.bundle_digest[:12]}; "
            "give that bundle or a new encode.table"
        )
    for name in ("store_k", "impact_bits", "buckets", "stored_fields"):
        if name == "buckets" and not wanted.buckets:
            continue
        if getattr(found, name) != getattr(wanted, name):
            section = "source" if name == "stored_fields" else "encode"
            raise other_setting(f"{section}.{name}", store, getattr(wanted, name), getattr(found, name))
    return found


def other_setting(field: str, store: Store, value: object, before: object) -> ConfigError:
    """Return the error for a setting that is not that of the table, with the values as YAML has them."""
    given, made = (json.dumps(one, ensure_ascii=False) for one in (value, before))
    remedy = "remove the setting" if before is None else f"set {made}"
    problem = f"{given} is not what {store.uri} is made with, {made}"
    return ConfigError(field, problem, f"{remedy}, or give a new encode.table")


def finished_table(field: str, store: Store, plan: str) -> Table | None:
    """Refuse a table of another plan.

    Returns:
        The table of a plan of one commit if it is complete; None if it has to be written.
    """
    table = open_table(store)
    if table is None:
        require_new_folder(field, store, but=f"{PROTOCOL_FOLDER}/")
        return None
    if table.properties.get(PLAN_PROPERTY) != plan:
        raise ConfigError(field, f"{store.uri} is a table of other vectors or settings", "give a new folder")
    done = table.transaction_version(plan)
    return None if done is None or done < 0 else table  # -1: fenced, but not committed


def require_new_folder(field: str, store: Store, *, but: str = "") -> None:
    """Refuse a folder that is not a table and contains more than drafts and files whose name begins with ``but``."""
    names = (name for name in store.names() if not disk.is_draft(name) and not (but and name.startswith(but)))
    if (foreign := next(names, None)) is not None:
        raise ConfigError(field, f"{store.uri} contains {foreign} and is not a table", "give a new folder")


def committed_files(table: Table) -> pa.Table:
    """Return the parts of a snapshot as an Arrow table: ``file_table``, with the bucket (int64) and sorted by it.

    Actors of a node share one copy of it in Ray's object store.
    """
    files = table.file_table()
    plain = files.select([name for name in files.column_names if not name.startswith(live_rows.partition_column(""))])
    return plain.append_column("bucket", live_rows.bucket_numbers(files)).sort_by("bucket").combine_chunks()


def files_of_bucket(files: pa.Table, bucket: int) -> list[live_rows.TableFile]:
    """Return the parts of a bucket."""
    if not files.num_rows:
        return []
    first, last = np.searchsorted(files["bucket"].chunk(0).to_numpy(), [bucket, bucket + 1])
    return live_rows.to_files(files.slice(first, last - first))


def table_digest(
    table_uri: str, options: dict[str, str] | None = None, *, version: int | None = None, verify: bool = False
) -> str:
    """Return the digest of the contents of a sparse table, independent of file names and of the order of rows.

    The digest is the sum modulo 2**256 of the sha256 of doc_id, terms, impacts and content_hash of every row, so that a
    duplicated row changes it. Parts have it in their names; only parts with deleted rows, whose digests are subtracted,
    and files without it in their names are opened.

    Args:
        table_uri: the table.
        options: options of the object store.
        version: version of the table; default the newest.
        verify: read every row instead; one batch of rows is in memory at a time.

    Returns:
        64 hex digits.

    Raises:
        ArtifactError: there is no table.
    """
    store = Store(table_uri, options or {})
    files = load_table(store, version).files()
    return part.combine_digests(live_rows.part_digest(store, file, verify=verify) for file in files)
