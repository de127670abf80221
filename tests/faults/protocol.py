"""One attempt at an encode job without Ray and without a model; every other step is production code.

The steps of the driver and the actors run here in one process, in the same order.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.rows import row_schema
from lsr_prod.corpus.sources import resolve_source
from lsr_prod.encoding.batches import encode_batches
from lsr_prod.encoding.cell import WaveTask, encode_cell
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.give_up import give_up_base
from lsr_prod.encoding.commit.markers import finished_cells, mark_finished
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.plans.increment import prepare_plan
from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.encoding.plans.saved import save_plan
from lsr_prod.encoding.plans.successors import link_successor
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.row_counts import with_row_counts
from lsr_prod.encoding.table import PLAN_PROPERTY, check_first_plan, check_table, create_sparse_table, files_by_bucket
from lsr_prod.formats.table import TableProperties
from lsr_prod.storage import Store
from lsr_prod.tables import Table, open_table
from lsr_prod.tables.quarantine import create_quarantine

__all__ = ["MANIFEST", "Job", "run_attempt"]

MANIFEST = re.compile(r"_manifest/0*[1-9]\d*\.json$")
"""Name of an object whose creation commits a Parquet table."""

_BUCKETS = 4
_STEP = 0.01

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Job:
    """Input and output of an encode job, the same for all its attempts.

    Attributes:
        paths: files of the corpus.
        table: folder or URI of the sparse table; the quarantine table is next to it.
        sink: ``delta`` or ``parquet``.
        options: options of the object store.
        splits: cells per bucket.
    """

    paths: tuple[str, ...]
    table: str
    sink: str
    options: dict[str, str]
    splits: int = 1

    @property
    def stores(self) -> tuple[Store, Store]:
        """Folders of the sparse table and of the quarantine table."""
        return Store(self.table, self.options), Store(f"{self.table}_quarantine", self.options)


def run_attempt(job: Job, phase: Phase, encoder: TextEncoder) -> int:
    """Make a plan, then encode and commit wave by wave until all waves are committed.

    Args:
        job: the work.
        phase: context manager that reports the phase of the protocol.
        encoder: encodes texts; may raise an error for a text.

    Returns:
        Number of waves that this attempt committed.
    """
    source = SourceSettings(paths=list(job.paths), text_fields=["text"], stored_fields=[])
    table, quarantine = job.stores
    with phase("plan"):
        plan, properties, committer = _begin(job, source)
    committed = 0
    for wave in range(waves_done(_open(table), plan.digest), plan.waves):
        cells = _BUCKETS * job.splits
        committed_files = files_by_bucket(_open(table))
        task = WaveTask(plan.digest, wave, cells, table, quarantine, properties, committed_files, plan.removed)
        result = _encode_wave(task, plan, source, encoder)
        with phase("commit"):
            committed += committer.commit(result)
        with phase("after-commit"):
            _open(table)
    return committed


def _begin(job: Job, source: SourceSettings) -> tuple[Plan, TableProperties, Committer]:
    """Run the steps of the driver before the first wave."""
    table, quarantine = job.stores
    settings = EncodeSettings(
        bundle="none", table=job.table, wave_megabytes=1, slice_megabytes=1, buckets=_BUCKETS, sink=job.sink
    )
    wanted = TableProperties("b" * 64, "v" * 64, _STEP, 8, settings.store_k, _BUCKETS, (), vocabulary_size=30_522)
    found = check_table(table, wanted, settings.sink)
    snapshot = _open(table) if found else None
    plan = prepare_plan(
        resolve_source(source, {}),
        source,
        settings,
        bundle_digest=wanted.bundle_digest,
        options=job.options,
        table=table,
        root=None if snapshot is None else snapshot.properties[PLAN_PROPERTY],
        waves_done=lambda digest: 0 if snapshot is None else waves_done(snapshot, digest),
    )
    save_plan(plan, table)
    if plan.base is not None:
        link_successor(table, plan, lambda digest: waves_done(_open(table), digest))
    epoch = take_epoch(table, plan.digest, source.paths)
    if found is None:
        check_first_plan(create_sparse_table(table, settings.sink, wanted, plan.digest), plan.digest)
    create_quarantine(quarantine, settings.sink)
    give_up_base(plan, table, quarantine)
    committer = Committer(epoch, table, quarantine)
    committer.fence()
    return plan, wanted, committer


def _encode_wave(task: WaveTask, plan: Plan, source: SourceSettings, encoder: TextEncoder) -> WaveResult:
    """Run the steps of the actors for a wave, without the cells that an earlier attempt finished."""
    done = finished_cells(task.table, task.quarantine, task.plan, task.wave)
    todo = [cell for cell in range(task.cells) if cell not in done]
    reader = Reader(source, task.cells, {}, None if len(todo) == task.cells else frozenset(todo))
    schema, pieces = row_schema(source.stored_fields), plan.wave(task.wave) if todo else ()
    tables = [table for piece in pieces for table in with_row_counts(reader.read(piece), todo, schema)]
    rows = pa.concat_tables([schema.empty_table(), *tables])
    results = [*done.values()]
    for cell in todo:
        result = encode_cell(
            replace(task, read_tasks=len(pieces)),
            cell,
            rows.filter(pc.equal(rows["cell"], cell)),
            partial(encode_batches, encoder),
        )
        results.append(mark_finished(task.table, task.quarantine, task.plan, task.wave, result))
    return WaveResult(task.wave, tuple(results))


def _open(store: Store) -> Table:
    table = open_table(store)
    assert table is not None
    return table
