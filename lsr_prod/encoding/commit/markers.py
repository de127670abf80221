"""Markers of finished cells: cells that an attempt has encoded are not encoded again by the next one.

A marker contains the receipt of a cell: its result, with parts that are not committed yet. The first marker of a cell
is valid for all attempts: their outputs need not be equal to the bit, but they describe the same rows of the source.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain

from pydantic import TypeAdapter

from lsr_prod import errors, logs
from lsr_prod.encoding.commit.committer import Committer, check_cell, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.plans import encode_plan, successors
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.tables import open_table, sparse_table
from lsr_prod.storage import Store, deletion_vector
from lsr_prod.storage.formats.digests import parsing, record_bytes

log = logs.get_log(__name__)

ReadMarkers = Callable[[Store, Store, Sequence[str]], Iterable[CellResult]]
MARKERS_FOLDER = f"{sparse_table.PROTOCOL_FOLDER}/done"
_RESULT = TypeAdapter(CellResult)


def mark_finished(table: Store, quarantine: Store, plan: str, wave: int, result: CellResult) -> CellResult:
    """Write the marker of an encoded cell.

    Returns:
        This result; or the result of another attempt that was first, if its parts are complete, it deletes rows of
        the same parts (after a compaction in the meantime it could not be committed), and it follows the same results.
    """
    name = f"{_folder(plan, wave)}/{result.cell}.json"
    data = record_bytes(asdict(result))
    if table.put_new(name, data):
        return result
    earlier = _read(table, quarantine, name)
    if earlier is not None and earlier.counts.rows_in != result.counts.rows_in:
        raise errors.IncompleteWaveError(
            f"wave {wave}, cell {result.cell}: {result.counts.rows_in} rows in this attempt, "
            f"{earlier.counts.rows_in} in another; "
            "nothing was committed, report this"
        )
    if earlier is None or _base(earlier) != _base(result):
        table.delete(name)
        table.put_new(name, data)
        return result
    return earlier


def read_markers(table: Store, quarantine: Store, names: Sequence[str]) -> list[CellResult]:
    """Return the results that markers contain, without those with damaged parts."""
    return [result for result in [_read(table, quarantine, name) for name in names] if result is not None]


def read_markers_on_workers(
    tasks: NodeTasks, table: Store, quarantine: Store, names: Sequence[str]
) -> list[CellResult]:
    """Run ``read_markers``; of many markers by Ray tasks."""
    return [*chain(*tasks.run_groups(read_markers, (table, quarantine), names, task="reading markers"))]


def finished_cells(
    table: Store, quarantine: Store, plan: str, wave: int, read: ReadMarkers = read_markers
) -> Mapping[int, CellResult]:
    """Return the results of cells that an earlier attempt finished, by cell, without cells with damaged parts."""
    # A process that was killed while writing a marker leaves a draft, which may be empty.
    names = [name for name in table.names(_folder(plan, wave)) if name.endswith(".json")]
    return {result.cell: result for result in read(table, quarantine, names)}


def delete_markers(table: Store, plan: str, wave: int, cells: Collection[int]) -> None:
    """Delete the markers of cells, so that the next attempt encodes them again."""
    for name in table.names(_folder(plan, wave)):
        stem = name.rpartition("/")[2].removesuffix(".json")
        if stem.isdigit() and int(stem) in cells:
            table.delete(name)


def marked_files(table: Store, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the parts, of both tables, and of the deletion vectors that markers name."""
    for name in names:
        data = table.get(name)
        if data is not None:
            with parsing(f"{table.uri}/{name} is damaged", "delete it"):
                result = _result_of(data)
            yield from (part.path for part in result.parts)
            if result.quarantine:
                yield result.quarantine.path
            yield from (path for each in result.deletions if (path := deletion_vector.file_of(each.vector)))


def _folder(plan: str, wave: int) -> str:
    return f"{MARKERS_FOLDER}/{plan}/{wave}"


def _read(table: Store, quarantine: Store, name: str) -> CellResult | None:
    data = table.get(name)
    if data is None:
        return None
    try:
        result = _result_of(data)
        check_cell(table, quarantine, result)
    except (errors.CommitError, ValueError):
        return None
    return result


def _result_of(marker: bytes) -> CellResult:
    return replace(_RESULT.validate_json(marker), reused=True)


def _base(result: CellResult) -> object:
    """Return what a result was based on: the parts that it deletes rows of, and the results that it follows."""
    return {(deletion.path, deletion.before) for deletion in result.deletions}, result.follows


def give_up_base(plan: encode_plan.Plan, table: Store, quarantine: Store) -> None:
    """Fence the unfinished plan that a plan follows; call it after the link and before the plan commits.

    An attempt at the base checks the link after it has loaded the snapshot that its commit is based on. The fence makes
    snapshots stale that it loaded before the link existed. So after the fence the number of committed waves is final.

    The run of a base without a transaction may have died before it fenced its own base, which then is fenced too.
    """
    given_up = _given_up(plan, table)
    for base, waves in reversed(given_up):  # the oldest first: a plan with a transaction has given up its base
        _fence(base, waves, table, quarantine)
    if given_up:
        base, waves = given_up[0]
        fields = {"plan": base, "waves": waves, "follows": plan.digest}
        log.warning("plan superseded" if waves == 0 else "plan abandoned", extra={"fields": fields})


def _given_up(plan: encode_plan.Plan, table: Store) -> list[tuple[str, int]]:
    """Return the unfinished plans to fence with their committed waves, newest first."""
    snapshot = open_table(table)
    found = []
    base, waves = plan.base, plan.header.base_waves
    while base is not None and waves is not None:
        found.append((base, waves))
        if snapshot is None or snapshot.transaction_version(base) is not None:
            break
        record = successors.read_record(table, base)
        base, waves = (None, None) if record is None else (record.get("base"), record.get("base_waves"))
    return found


def _fence(plan: str, waves: int, table: Store, quarantine: Store) -> None:
    committer = Committer(take_epoch(table, plan, ()), table, quarantine)
    committer.fence()
    found = open_table(table)
    done = 0 if found is None else waves_done(found, plan)
    if done != waves:
        raise errors.CommitError(
            f"plan {plan[:12]} has committed {done} waves, but {waves} when this run began: another run continues "
            "it; let that run finish, then run this one again"
        )
    committer.clear_quarantine(waves)
