"""Plans saved next to their table, three objects per plan.

The header is written last, so that a plan with a header is complete.
"""

import io
import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.corpus.filelist import file_keys, files_digest, with_location_facts, without_location_facts
from lsr_prod.encoding.plans.header import PLAN_FORMAT, PlanHeader
from lsr_prod.encoding.plans.plan import Plan, slices_digest
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError
from lsr_prod.formats.digest import digest_json, record_bytes
from lsr_prod.storage import Store

PLANS_FOLDER = f"{PROTOCOL_FOLDER}/plans"


def save_plan(plan: Plan, table: Store) -> None:
    """Write the plan next to the table unless an earlier attempt did."""
    record, files, slices = plan_objects(plan.digest)
    if table.size(record) is not None:
        return
    table.put_new(files, _parquet(without_location_facts(plan.files)))
    table.put_new(slices, _parquet(plan.slice_table))
    table.put_new(record, record_bytes(plan.header.to_json()))


def record_name(digest: str) -> str:
    """Return the name of the header of a plan, which is written last and deleted first."""
    return f"{PLANS_FOLDER}/{digest}.json"


def plan_objects(digest: str) -> tuple[str, str, str]:
    """Return the names of the objects of a plan: header, files, slices."""
    return record_name(digest), f"{PLANS_FOLDER}/{digest}.files.parquet", f"{PLANS_FOLDER}/{digest}.slices.parquet"


def load_plan(table: Store, digest: str) -> Plan:
    """Read a plan that ``save_plan`` wrote.

    Its files have the locations at the time of saving. A corpus that was moved is still the same corpus, so a caller
    that reads the files replaces them by the current locations (``increment.prepare_plan`` does).
    """
    folder = f"{PLANS_FOLDER}/{digest}"
    header, *tables = (table.get(name) for name in plan_objects(digest))
    found = [data for data in tables if data is not None]
    if header is None or len(found) < len(tables):
        raise ArtifactError(f"{table.uri} has no plan {digest[:12]}: {folder}.* was deleted; encode into a new table")
    document = json.loads(header)
    if document.get("format") != PLAN_FORMAT:
        raise FormatVersionError(
            f"plan {digest[:12]} has format {document.get('format')}, but this release reads format {PLAN_FORMAT}; "
            "encode into a new table"
        )
    files, slice_table = (pq.read_table(io.BytesIO(data)) for data in found)
    named = (digest, document["files"]["sha256"], document["slices"]["sha256"])
    if (digest_json(document), files_digest(files), slices_digest(slice_table)) != named:
        raise DigestMismatchError(f"{folder}.* in {table.uri} is damaged; encode into a new table")
    return Plan.of(PlanHeader.from_json(document), with_location_facts(files), slice_table)


def read_record(table: Store, digest: str) -> dict[str, Any] | None:
    """Return the header of a plan as it is stored, of any format; None: it was not completed, or is deleted."""
    name = record_name(digest)
    data = table.get(name)
    try:
        record = None if data is None else json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"{table.uri}/{name} is damaged ({error}); restore it") from error
    if not isinstance(record, dict | None):
        raise ArtifactError(f"{table.uri}/{name} is damaged (it is no object); restore it")
    return record


def file_locations(table: Store, digest: str, keys: Collection[int]) -> dict[int, str]:
    """Return the locations of some files of a saved plan by ``SourceFile.key``."""
    _, name, _ = plan_objects(digest)
    data = table.get(name)
    if data is None:
        return {}
    files = pq.read_table(io.BytesIO(data))
    wanted = files.filter(pc.is_in(pa.array(file_keys(files)), value_set=pa.array(sorted(keys), pa.int64())))
    found = zip(file_keys(wanted).tolist(), wanted["uri"].to_pylist(), wanted["name"].to_pylist(), strict=True)
    return {key: f"{uri}/{name}" for key, uri, name in found}


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
