"""Links from a plan to the plan that follows it, created only if absent.

A plan is followed when it is finished, or when it is given up: a plan without a committed wave is superseded, one with
some is abandoned on request. A link to the successor of an unfinished plan names the number of waves that the plan has
committed. It is valid only as long as that number is right: a plan that commits another wave at the same moment makes
the link invalid, and a plan with a valid link commits no further wave (``check_not_followed``).

Of several valid links of a plan the newest counts. A shortcut is a further link of the first plan to a later plan of
the chain (``link_shortcut``), so that finding the newest plan reads few links, and plans between can be deleted.

Plans saved next to their table, three objects per plan.

The header is written last, so that a plan with a header is complete.
"""

import io
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.corpus.filelist import file_keys, files_digest, with_location_facts, without_location_facts
from lsr_prod.encoding.plans import encode_plan, plan_header
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError, CommitError, DigestMismatchError, FencedError, FormatVersionError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json, parsing, record_bytes

PLANS_FOLDER = f"{PROTOCOL_FOLDER}/plans"
SUCCESSORS_FOLDER = f"{PROTOCOL_FOLDER}/successors"
WavesDone = Callable[[str], int]
"""Returns the number of committed waves of a plan."""


def save_plan(plan: encode_plan.Plan, table: Store) -> None:
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


def load_plan(table: Store, digest: str) -> encode_plan.Plan:
    """Read a plan that ``save_plan`` wrote.

    Its files have the locations at the time of saving. A corpus that was moved is still the same corpus, so a caller
    that reads the files replaces them by the current locations (``increment.prepare_plan`` does).
    """
    folder = f"{PLANS_FOLDER}/{digest}"
    header, *tables = (table.get(name) for name in plan_objects(digest))
    found = [data for data in tables if data is not None]
    if header is None or len(found) < len(tables):
        raise ArtifactError(f"{table.uri} has no plan {digest[:12]}: {folder}.* was deleted; encode into a new table")
    with parsing(f"{folder}.* in {table.uri} is damaged", "encode into a new table"):
        document = json.loads(header)
        if document.get("format") != plan_header.PLAN_FORMAT:
            raise FormatVersionError(
                f"plan {digest[:12]} has format {document.get('format')}, but this release reads "
                f"format {plan_header.PLAN_FORMAT}; encode into a new table"
            )
        files, slice_table = (pq.read_table(io.BytesIO(data)) for data in found)
        named = (digest, document["files"]["sha256"], document["slices"]["sha256"])
        if (digest_json(document), files_digest(files), encode_plan.slices_digest(slice_table)) != named:
            raise DigestMismatchError(f"{folder}.* in {table.uri} is damaged; encode into a new table")
        return encode_plan.Plan.of(plan_header.PlanHeader.from_json(document), with_location_facts(files), slice_table)


def read_record(table: Store, digest: str) -> dict[str, Any] | None:
    """Return the header of a plan as it is stored, of any format; None: it was not completed, or is deleted."""
    name = record_name(digest)
    data = table.get(name)
    with parsing(f"{table.uri}/{name} is damaged", "restore it"):
        record = None if data is None else json.loads(data)
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


@dataclass(frozen=True, slots=True)
class PlanLink:
    """A link."""

    name: str  # of its object
    plan: str  # digest of the successor
    waves: int | None  # committed waves of the unfinished plan that it follows; None: that plan is finished


def link_successor(table: Store, plan: encode_plan.Plan, waves_done: WavesDone) -> None:
    """Make a plan the successor of its base, unless it is already."""
    base, waves = plan.base, plan.header.base_waves
    assert base is not None
    record = _link_record(plan.digest, waves)
    while True:
        done, names = waves_done(base), _names(table, base)
        following = _newest(_valid(table, names, done))
        if following not in (None, plan.digest):
            raise CommitError(
                f"plan {following[:12]} of another run, which read another state of the source, already follows plan "
                f"{base[:12]} in {table.uri}; let that run finish, then run this one again"
            )
        if waves not in (None, done):
            raise CommitError(
                f"plan {base[:12]} in {table.uri} has committed {done} waves, but {waves} when this run began: another "
                "run continues it; let that run finish, then run this one again"
            )
        _check_saved(table, plan)  # after the links were read: those of a plan are deleted after its record
        if following is not None:
            return
        table.put_new(_next_name(base, names), record)


def link_shortcut(table: Store, first: str, plan: str, waves: int | None) -> None:
    """Link the first plan of a chain to a later one."""
    name = _next_name(first, _names(table, first))
    table.put_new(name, _link_record(plan, waves))  # if another process was faster: the next time


def successor_of(table: Store, digest: str, waves_done: WavesDone) -> str | None:
    """Return the digest of the plan that follows a plan, or None."""
    return _newest(valid_links(table, digest, waves_done))


def plan_chain(table: Store, plan: str, waves_done: WavesDone) -> list[str]:
    """Return a plan and the plans that follow it, oldest first."""
    chain = [plan]
    while (following := successor_of(table, chain[-1], waves_done)) is not None:
        if following in chain:
            raise ArtifactError(f"{table.uri}: the plans follow each other in a circle; restore {PLANS_FOLDER}")
        chain.append(following)
    return chain


def valid_links(table: Store, digest: str, waves_done: WavesDone) -> Iterator[PlanLink]:
    """Yield the valid links of a plan, newest first; only the first plan of a chain has several."""
    if names := _names(table, digest):
        yield from _valid(table, names, waves_done(digest))


def check_not_followed(table: Store, plan: str, waves: int) -> None:
    """Check that a plan may commit its next wave."""
    following = _newest(_valid(table, _names(table, plan), waves))
    if following is not None:
        raise FencedError(
            f"plan {plan[:12]} was given up: plan {following[:12]} of another run follows it; this attempt stops; let "
            "the newer run finish"
        )


def _link_record(plan: str, waves: int | None) -> bytes:
    return record_bytes({"plan": plan} if waves is None else {"plan": plan, "waves": waves})


def _valid(table: Store, names: Sequence[str], waves: int) -> Iterator[PlanLink]:
    for name in reversed(names):
        link = _read(table, name)
        if link.waves is None or link.waves == waves:
            yield link


def _newest(links: Iterator[PlanLink]) -> str | None:
    return next((link.plan for link in links), None)


def _read(table: Store, name: str) -> PlanLink:
    data = table.get(name)
    if data is None:
        raise CommitError(f"{table.uri}/{name} was deleted during the run; run the job again")
    with parsing(f"{table.uri}/{name} is damaged", "restore it"):
        record = json.loads(data)
        return PlanLink(name, str(record["plan"]), record.get("waves"))


def _check_saved(table: Store, plan: encode_plan.Plan) -> None:
    assert plan.base is not None
    missing = {*plan_objects(plan.digest), record_name(plan.base)} - {*table.names(PLANS_FOLDER)}
    if missing:
        raise CommitError(
            f"{table.uri}/{min(missing)} was deleted during the run: this run stalled for longer than "
            "maintain.retention_hours; run the job again"
        )


def _names(table: Store, base: str) -> list[str]:
    """Return the links of a plan, oldest first."""
    return [name for name in table.names(_folder(base)) if name.endswith(".json")]


def _next_name(base: str, names: Sequence[str]) -> str:
    """Return a name after those of all links; the oldest of them may have been deleted."""
    newest = names[-1].rpartition("/")[2].removesuffix(".json") if names else "0"
    return f"{_folder(base)}/{int(newest) + 1:06d}.json"


def _folder(base: str) -> str:
    return f"{SUCCESSORS_FOLDER}/{base}"
