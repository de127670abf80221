"""Nights after a simulated run: the steps of the driver if nothing has changed, and if 1 % of the files have.

Requests and CPU seconds are those of the real planner and committer. Bytes are computed from two figures that
``benchmarks.encode.nights`` measured with a million documents: an encoder reads 64 KB of footer and ``_ID_BYTES`` per
row of every part to find the rows that a wave deletes.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import give_up_base
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs
from lsr_prod.encoding.plans.increment import prepare_plan
from lsr_prod.encoding.plans.successors import link_successor, save_plan
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.tables import Table, open_table
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.encoding.tables.live_rows import total, total_live_rows
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY, committed_files, files_of_bucket
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import DeletionVector
from lsr_prod.storage.remote import store_counts

__all__ = ["CHANGED", "Corpus", "Receipts", "newest", "nights"]

CHANGED = 100  # one file of so many
_ID_BYTES = 12  # of ids, source files and content keys, per row
_FOOTER_BYTES = 65_536
_VECTOR_BYTES = 2  # of a deleted row
_LOG_BYTES = 600  # of a part and its new vector in the log

Receipts = Callable[[Plan, int, int], WaveResult]
"""Returns the receipts of new parts: plan, wave, rows of the plan."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A simulated corpus.

    Attributes:
        rows: number of documents.
        row_bytes: of a document in the source.
        table_share: bytes of the table per byte of the source.
        most_files: largest number of files.
    """

    rows: int
    row_bytes: int = 1000
    table_share: float = 0.6
    most_files: int = 100_000

    def files(self, night: int = 0) -> Iterator[SourceFile]:
        """Yield the files; each night another hundredth of them is changed."""
        count = min(self.most_files, max(self.rows // 10_000, CHANGED))
        size = self.rows * self.row_bytes // count
        for number in range(count):
            state = night if number % CHANGED == 0 else 0
            tag = hashlib.md5(b"%d %d" % (number, state), usedforsecurity=False).hexdigest()
            yield SourceFile("s3://corpus/documents", f"part-{number:09d}.jsonl.gz", "jsonl.gz", size, f'"{tag}"')


def nights(
    corpus: Corpus, encode: EncodeSettings, table: Store, quarantine: Store, receipts: Receipts, actors: int
) -> dict[str, float]:
    """Simulate a night without a change and one with 1 % changed files; return their figures."""
    source = SourceSettings(paths=["s3://corpus/"])

    def planned(night: int) -> Plan:
        snapshot = newest(table)
        return prepare_plan(
            corpus.files(night),
            PlanInputs(source, encode, "b", {}, lambda: actors),
            table=table,
            root=snapshot.properties[PLAN_PROPERTY],
            waves_done=lambda plan: waves_done(newest(table), plan),
        )

    def unchanged() -> None:
        plan = planned(0)
        assert waves_done(newest(table), plan.digest) == plan.waves
        save_plan(plan, table)
        take_epoch(table, plan.digest, [])
        found = newest(table)
        assert total_live_rows(found.file_table()) > 0 < total(found.file_table(), "size")

    def changed() -> None:
        plan = planned(1)
        assert plan.base is not None
        save_plan(plan, table)
        link_successor(table, plan, lambda name: waves_done(newest(table), name))
        epoch = take_epoch(table, plan.digest, [])
        give_up_base(plan, table, quarantine)
        committer = Committer(epoch, table, quarantine, lambda *_: None, lambda _, groups: [some[0] for some in groups])
        committer.fence()
        for wave in range(plan.waves):
            found = newest(table)
            committer.commit(_with_deletions(receipts(plan, wave, corpus.rows // CHANGED), found))

    before = newest(table)
    parts = before.file_table().num_rows
    figures = {**_measured("unchanged", unchanged), **_measured("changed", changed)}
    after = newest(table)
    added = after.file_table().num_rows - parts
    share = corpus.rows * corpus.row_bytes / CHANGED
    read = share + corpus.rows * _ID_BYTES + parts * _FOOTER_BYTES
    written = share * corpus.table_share + corpus.rows / CHANGED * _VECTOR_BYTES + (parts + added) * _LOG_BYTES
    return figures | {
        "changed_new_parts": added,
        "changed_read_gb": round(read / 1e9, 2),
        "changed_written_gb": round(written / 1e9, 2),
        "changed_read_share": round(read / (share * (1 + corpus.table_share)), 2),
        "changed_written_share": round(written / (share * corpus.table_share), 2),
    }


def newest(table: Store) -> Table:
    """Open the newest snapshot."""
    found = open_table(table)
    assert found is not None
    return found


def _measured(night: str, run: Callable[[], None]) -> dict[str, float]:
    before, cpu, began = store_counts(), time.process_time(), time.perf_counter()
    run()
    counts = store_counts() - before
    return {
        f"{night}_driver_cpu_s": round(time.process_time() - cpu, 2),
        f"{night}_seconds": round(time.perf_counter() - began, 2),
        f"{night}_requests": sum(counts.requests.values()),
    }


def _with_deletions(result: WaveResult, table: Table) -> WaveResult:
    """Return receipts whose first cell of each bucket deletes a hundredth of the rows of every part of the bucket."""
    files, seen, cells = committed_files(table), set[int](), []
    rng = np.random.default_rng(result.wave)
    for cell in result.cells:
        deletions = []
        if cell.bucket not in seen:
            seen.add(cell.bucket)
            for file in files_of_bucket(files, cell.bucket):
                rows = max((file.rows or 0) // CHANGED, 1)
                vector = DeletionVector("u", rng.bytes(10).hex(), 1, rows * _VECTOR_BYTES, rows)
                deletions.append(Deletion(file.path, None, vector, rows))
        deleted = sum(deletion.rows for deletion in deletions)
        superseded = min(deleted, cell.counts.rows_out)
        counts = replace(cell.counts, superseded=superseded, deleted=deleted - superseded)
        cells.append(replace(cell, counts=counts, deletions=tuple(deletions)))
    return replace(result, cells=tuple(cells))
