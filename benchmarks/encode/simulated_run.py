"""A run whose encoders cost nothing, and two nights after it: the steps of the driver.

Receipts name parts that nobody wrote.
"""

import json
import resource
import tempfile
import time

import numpy as np
import ray

from benchmarks.encode.simulated_nights import Corpus, newest, nights
from lsr_prod.cluster import ray_session
from lsr_prod.config import EncodeSettings, RaySettings, SourceSettings
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.plans.successors import load_plan, save_plan
from lsr_prod.encoding.results import CellResult, Counts, WaveResult
from lsr_prod.encoding.tables import Part
from lsr_prod.encoding.tables.live_rows import total
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import committed_files, create_sparse_table, table_digest
from lsr_prod.encoding.waves import blocks_of_cells
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties
from lsr_prod.storage.remote import store_counts

__all__ = ["ACTORS", "ray_us_per_object", "simulate"]

ACTORS = 1000


def simulate(rows: int, ray_us: float, rate: float) -> dict[str, float]:
    """Plan and commit a corpus, go on with two nights, and return the figures of the driver.

    Args:
        rows: of the corpus.
        ray_us: CPU microseconds of Ray per object of the shuffle.
        rate: documents per second of an encoder.
    """
    corpus = Corpus(rows)
    with tempfile.TemporaryDirectory() as folder:
        table, quarantine = Store(f"{folder}/table"), Store(f"{folder}/quarantine")
        source = SourceSettings(paths=["s3://corpus/"])
        encode = EncodeSettings(bundle="bundle", table=table.uri)
        before, cpu, began = store_counts(), time.process_time(), time.perf_counter()
        plan = make_plan(corpus.files(), PlanInputs(source, encode, "b", {}, lambda: ACTORS))
        save_plan(plan, table)
        properties = TableProperties("b" * 64, "v" * 64, 0.01, 8, 256, plan.buckets, (), 30522)
        create_sparse_table(table, properties, plan.digest)
        create_quarantine(quarantine)
        committer = Committer(take_epoch(table, plan.digest, []), table, quarantine, lambda *_: None)
        committer.fence()
        objects = 0
        for wave in range(plan.waves):
            committed_files(newest(table))
            blocks = blocks_of_cells(plan.cells_of(wave), plan.buckets, 4 * ACTORS)
            objects += len(blocks) * max(-(-plan.largest_wave_bytes // plan.slice_bytes), 1)
            committer.commit(_receipts(plan, wave, rows))
        digest = table_digest(table.uri)
        driver_cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        counts = store_counts() - before
        began = time.perf_counter()
        again = load_plan(table, plan.digest)
        snapshot = newest(table)
        assert waves_done(snapshot, again.digest) == plan.waves
        committed_files(snapshot)
        resume = time.perf_counter() - began
        parts = snapshot.file_table().num_rows
        assert digest == table_digest(table.uri)
        after = nights(corpus, encode, table, quarantine, _receipts, ACTORS)
    wall = rows / (ACTORS * rate)
    busy = driver_cpu + objects * ray_us / 1e6
    return {
        "waves": plan.waves,
        "parts": parts,
        "buckets": plan.buckets,
        "megabytes_per_part": round(total(snapshot.file_table(), "size") / max(parts, 1) / 1e6, 1),
        "read_tasks": plan.sizes()["read_tasks"],
        "objects": objects,
        "driver_cpu_s": round(driver_cpu, 2),
        "driver_cpu_s_per_million": round(driver_cpu / rows * 1e6, 4),
        "driver_seconds": round(seconds, 2),
        "ray_cpu_s": round(objects * ray_us / 1e6, 1),
        "requests": sum(counts.requests.values()),
        "requests_per_million": round(sum(counts.requests.values()) / rows * 1e6, 2),
        "wall_s": round(wall, 1),
        "driver_share": round(busy / wall, 4),
        "resume_s": round(resume, 2),
        **after,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


def ray_us_per_object(tasks: int = 40, blocks: int = 1000) -> float:
    """Return the CPU microseconds of this process per object that a task returns and an actor call takes."""

    def read(count: int) -> list[bytes]:
        return [b""] * count

    class Encoder:
        def encode(self, *tables: bytes) -> int:
            return len(tables)

    with ray_session(RaySettings()):
        encoder = ray.remote(num_cpus=0)(Encoder).remote()
        ray.get(encoder.encode.remote())
        task = ray.remote(num_cpus=0.5, max_retries=0)(read).options(num_returns=blocks)
        ray.get(task.remote(blocks))
        began = time.process_time()
        tables = [task.remote(blocks) for _ in range(tasks)]
        calls = [encoder.encode.remote(*(some[block] for some in tables)) for block in range(blocks)]
        assert ray.get(calls) == [tasks] * blocks
        return (time.process_time() - began) / (tasks * blocks) * 1e6


def _receipts(plan: Plan, wave: int, rows: int) -> WaveResult:
    cells = plan.cells_of(wave)
    corpus = Corpus(rows)
    share = max(rows // plan.waves // len(cells), 1)
    size = int(share * corpus.row_bytes * corpus.table_share)
    rng = np.random.default_rng([wave, rows])
    results = []
    for cell in cells:
        bucket = cell % plan.buckets
        name = f"bucket={bucket}/part-{rng.bytes(32).hex()}-{rng.bytes(32).hex()}.parquet"
        bounds = {"doc_id": "https://example.org/000000000000", "content_hash": "0" * 64, "source_file": 1 << 62}
        stats = {"numRecords": share, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(bounds, 0)}
        part = Part(name, size, share, json.dumps(stats))
        results.append(CellResult(cell, bucket, Counts(rows_in=share, rows_out=share), (part,), None))
    return WaveResult(wave, tuple(results))
