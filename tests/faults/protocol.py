"""One attempt at an encode job without Ray and without a model; every other step is production code.

The steps of the driver and the actors run here in one process, in the same order.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import iterate_files, list_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.cells.cell import encode_batches, prepare_cell, write_cell
from lsr_prod.encoding.cells.known_rows import Rule
from lsr_prod.encoding.cells.lookup import WaveTask, followed_outputs, look_up_cells, reusable_results, with_row_counts
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import give_up_base, mark_finished
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs
from lsr_prod.encoding.plans.increment import has_order_of, prepare_plan
from lsr_prod.encoding.plans.successors import link_successor, plan_chain, save_plan
from lsr_prod.encoding.prepare import find_returning_files
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.tables import Table, open_table
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import (
    PLAN_PROPERTY,
    check_first_plan,
    check_table,
    committed_files,
    create_sparse_table,
)
from lsr_prod.encoding.waves import _read_slices
from lsr_prod.errors import StaleWaveError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties

__all__ = ["COMMIT", "Job", "run_attempt"]

COMMIT = re.compile(r"_delta_log/0*[1-9]\d*\.json$")
"""Name of an object whose creation commits deletions or properties to a table."""

_STALE_TRIES = 5
_AHEAD = 1  # waves that are encoded before the one before them is committed

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Job:
    """Input and output of an encode job, the same for all its attempts.

    Attributes:
        paths: files of the corpus.
        table: folder or URI of the sparse table; the quarantine table is next to it.
        options: options of the object store.
        on_duplicate: ``encode.on_duplicate``.
        buckets: of the sparse table; with one bucket, large increments have several cells per bucket.
    """

    paths: tuple[str, ...]
    table: str
    options: dict[str, str]
    buckets: int = 4
    on_duplicate: Rule = "first"
    stored_fields: tuple[str, ...] = ()
    bundle: str = "b" * 64
    vocabulary: str = "v" * 64
    vocabulary_size: int = 30_522
    impact_step: float = 0.01
    megabytes: int | None = 1

    @property
    def stores(self) -> tuple[Store, Store]:
        """Folders of the sparse table and of the quarantine table."""
        return Store(self.table, self.options), Store(f"{self.table}_quarantine", self.options)


def run_attempt(job: Job, phase: Phase, encoder: TextEncoder, *, abandon: bool = False) -> int:
    """Make a plan, an increment if the source has changed, then encode and commit wave by wave.

    Args:
        job: the work.
        phase: context manager that reports the phase of the protocol.
        encoder: encodes texts; may raise an error for a text.
        abandon: give up the newest plan, although it has committed waves.

    Returns:
        Number of waves that this attempt committed.
    """
    source = SourceSettings(paths=list(job.paths), text_fields=["text"], stored_fields=list(job.stored_fields))
    table = job.stores[0]
    with phase("plan"):
        listed = list_files(resolve_source(source, {}))
        plan, properties, committer = _begin(job, source, listed, abandon)
    committed, rows = 0, _Rows(plan, source)
    ahead = plan.base is not None or job.on_duplicate != "last"
    results: dict[int, WaveResult] = {}
    wave, tries = waves_done(_open(table), plan.digest), 0
    was_finished = wave == plan.waves
    while wave < plan.waves:
        for later in range(wave, min(wave + (_AHEAD if ahead else 0) + 1, plan.waves)):
            if later not in results:
                task = _wave_task(job, plan, properties, later)
                results[later] = _encode_wave(task, plan, rows, encoder, results)
        try:
            with phase("commit"):
                committed += committer.commit(results[wave])
        except StaleWaveError:
            tries += 1
            if tries == _STALE_TRIES:
                raise
            results.clear()
            continue
        with phase("after-commit"):
            _open(table)
        wave, tries = wave + 1, 0
    if not was_finished and not has_order_of(plan, listed):
        committed += run_attempt(job, phase, encoder)
    return committed


def _begin(
    job: Job, source: SourceSettings, listed: pa.Table, abandon: bool
) -> tuple[Plan, TableProperties, Committer]:
    """Run the steps of the driver before the first wave."""
    table, quarantine = job.stores
    settings = EncodeSettings(
        bundle="none",
        table=job.table,
        wave_megabytes=job.megabytes,
        slice_megabytes=job.megabytes,
        cell_megabytes=job.megabytes,
        buckets=job.buckets,
        on_duplicate=job.on_duplicate,
        max_bad_fraction=1,
    )
    wanted = TableProperties(
        bundle_digest=job.bundle,
        vocabulary_sha256=job.vocabulary,
        impact_step=job.impact_step,
        impact_bits=8,
        store_k=settings.store_k,
        buckets=job.buckets,
        stored_fields=tuple(job.stored_fields),
        vocabulary_size=job.vocabulary_size,
    )
    found = check_table(table, wanted)
    snapshot = _open(table) if found else None
    root = None if snapshot is None else snapshot.properties[PLAN_PROPERTY]

    def done(digest: str) -> int:
        return 0 if snapshot is None else waves_done(snapshot, digest)

    plan = prepare_plan(
        (file for _, file in iterate_files(listed)),
        PlanInputs(source, settings, wanted.bundle_digest, job.options),
        table=table,
        root=root,
        waves_done=done,
        abandon=plan_chain(table, root, done)[-1] if abandon and root else None,
        returning=lambda changes: find_returning_files(
            _open(table), changes, quarantine=quarantine, rule=job.on_duplicate
        ),
    )
    save_plan(plan, table)
    if plan.base is not None:
        link_successor(table, plan, lambda digest: waves_done(_open(table), digest))
    epoch = take_epoch(table, plan.digest, source.paths)
    if found is None:
        check_first_plan(create_sparse_table(table, wanted, plan.digest), plan.digest)
    create_quarantine(quarantine)
    give_up_base(plan, table, quarantine)
    committer = Committer(epoch, table, quarantine)
    committer.fence()
    return plan, wanted, committer


def _wave_task(job: Job, plan: Plan, properties: TableProperties, wave: int) -> WaveTask:
    table, quarantine = job.stores
    return WaveTask(
        plan=plan.digest,
        wave=wave,
        cells=plan.cells,
        table=table,
        quarantine=quarantine,
        properties=properties,
        committed=committed_files(_open(table)),
        removed=plan.removed,
        present=None if plan.base is None else plan.present(),
        on_duplicate=job.on_duplicate,
        done=waves_done(_open(table), plan.digest),
    )


def _encode_wave(
    task: WaveTask, plan: Plan, rows_of: "_Rows", encoder: TextEncoder, before: Mapping[int, WaveResult]
) -> WaveResult:
    """Run the steps of the actors for a wave, without the cells that an earlier attempt finished."""
    cells = plan.cells_of(task.wave)
    earlier = {wave: {cell.cell: cell for cell in result.cells} for wave, result in before.items()}
    done = reusable_results(task, cells, earlier)
    todo = [cell for cell in cells if cell not in done]
    tables = rows_of.of_wave(task.wave, todo) if todo else []
    results = [*done.values()]
    by_cell = {cell: pa.concat_tables([rows.filter(pc.equal(rows["cell"], cell)) for rows in tables]) for cell in todo}
    task = replace(task, read_tasks=len(tables))
    follows = followed_outputs(task, todo, earlier if plan.base is None else {})
    for cell in todo:
        (found,) = look_up_cells(task, by_cell[cell], follows)
        ready = prepare_cell(task, found)
        result = write_cell(task, ready, *encode_batches(encoder, ready.texts()), follows[cell])
        results.append(mark_finished(task.table, task.quarantine, task.plan, task.wave, result))
    return WaveResult(task.wave, tuple(results))


class _Rows:
    """Rows of a plan: a first plan reads every wave, an increment reads its new files once for all waves."""

    def __init__(self, plan: Plan, source: SourceSettings) -> None:
        self._plan, self._source = plan, source
        self._by_wave: dict[int, list[pa.Table]] = {}

    def of_wave(self, wave: int, todo: Sequence[int]) -> list[pa.Table]:
        """Return the rows of a wave with a row count for each of its cells; a table per read task."""
        plan, schema = self._plan, row_schema(self._source.stored_fields)
        if plan.base is None:
            reader = Reader(self._source, plan.cells, {}, None if len(todo) == plan.cells else frozenset(todo))
            read = ([*with_row_counts(reader.read(piece), todo, schema)] for piece in plan.wave(wave))
            return [shuffle(pa.concat_tables(tables)) for tables in read]
        if wave not in self._by_wave:
            waves = range(wave, plan.waves)
            cells = [plan.cells_of(number) for number in waves]
            keep = frozenset(cell for some in cells for cell in some) if wave else None
            reader = Reader(self._source, plan.cells, {}, keep)
            read = [_read_slices(reader, [piece], cells) for piece in plan.slices()]
            read = read or [_read_slices(reader, [], cells)]
            self._by_wave = {number: [shuffle(some[place]) for some in read] for place, number in enumerate(waves)}
        return self._by_wave[wave]


def shuffle(rows: pa.Table) -> pa.Table:
    """Return the rows as they arrive at the cells; a fault replaces this function."""
    return rows


def _open(store: Store) -> Table:
    table = open_table(store)
    assert table is not None
    return table
