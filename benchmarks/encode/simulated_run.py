"""A run whose encoders cost nothing: the steps of its driver, with receipts of parts that nobody wrote."""

import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import ray

from lsr_prod.cluster import ray_session
from lsr_prod.config import EncodeSettings, RaySettings, SourceSettings
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.plan import Plan, make_plan
from lsr_prod.encoding.plans.saved import load_plan, save_plan
from lsr_prod.encoding.reading import blocks_of_cells
from lsr_prod.encoding.results import CellResult, WaveResult
from lsr_prod.encoding.table import committed_files, create_sparse_table, table_digest
from lsr_prod.formats.table import TableProperties
from lsr_prod.storage import Store
from lsr_prod.storage.counts import store_counts
from lsr_prod.tables import Part, open_table
from lsr_prod.tables.quarantine import create_quarantine

__all__ = ["ACTORS", "ray_us_per_object", "simulate"]

ACTORS = 1000
_ROW_BYTES = 1000
_TABLE_SHARE = 0.6  # bytes of the table per byte of the source
_MOST_FILES = 100_000


def simulate(rows: int, ray_us: float, rate: float) -> dict[str, float]:
    """Plan and commit a corpus, and return the figures of the driver.

    Args:
        rows: of the corpus.
        ray_us: CPU microseconds of Ray per object of the shuffle.
        rate: documents per second of an encoder.
    """
    with tempfile.TemporaryDirectory() as folder:
        table, quarantine = Store(f"{folder}/table"), Store(f"{folder}/quarantine")
        source = SourceSettings(paths=["s3://corpus/"])
        encode = EncodeSettings(bundle="bundle", table=table.uri)
        before, cpu, began = store_counts(), time.process_time(), time.perf_counter()
        plan = make_plan(_files(rows), source, encode, bundle_digest="b", options={}, actors=lambda: ACTORS)
        save_plan(plan, table)
        properties = TableProperties("b" * 64, "v" * 64, 0.01, 8, 256, plan.buckets, (), 30522)
        create_sparse_table(table, "delta", properties, plan.digest)
        create_quarantine(quarantine, "delta")
        committer = Committer(take_epoch(table, plan.digest, []), table, quarantine, lambda *_: None)
        committer.fence()
        objects = 0
        for wave in range(plan.waves):
            snapshot = open_table(table)
            assert snapshot is not None
            committed_files(snapshot)
            blocks = blocks_of_cells(plan.cells_of(wave), plan.buckets, 4 * ACTORS)
            objects += len(blocks) * max(-(-plan.largest_wave_bytes // plan.slice_bytes), 1)
            committer.commit(_receipts(plan, wave, rows))
        digest = table_digest(table.uri)
        driver_cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        counts = store_counts() - before
        began = time.perf_counter()
        again = load_plan(table, plan.digest)
        snapshot = open_table(table)
        assert snapshot is not None
        assert waves_done(snapshot, again.digest) == plan.waves
        committed_files(snapshot)
        resume = time.perf_counter() - began
        parts = snapshot.file_table().num_rows
        assert digest == table_digest(table.uri)
    wall = rows / (ACTORS * rate)
    busy = driver_cpu + objects * ray_us / 1e6
    return {
        "waves": plan.waves,
        "parts": parts,
        "buckets": plan.buckets,
        "megabytes_per_part": round(rows * _ROW_BYTES * _TABLE_SHARE / max(parts, 1) / 1e6, 1),
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


def _files(rows: int) -> Iterator[SourceFile]:
    count = min(_MOST_FILES, max(rows // 10_000, 1))
    size = rows * _ROW_BYTES // count
    for number in range(count):
        tag = hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()
        yield SourceFile("s3://corpus/documents", f"part-{number:09d}-{tag}.jsonl.gz", "jsonl.gz", size, f'"{tag}"')


def _receipts(plan: Plan, wave: int, rows: int) -> WaveResult:
    cells = plan.cells_of(wave)
    share = rows // plan.waves // len(cells)
    rng = np.random.default_rng(wave)
    results = []
    for cell in cells:
        bucket = cell % plan.buckets
        name = f"bucket={bucket}/part-{rng.bytes(32).hex()}-{rng.bytes(32).hex()}.parquet"
        bounds = {"doc_id": "https://example.org/000000000000", "content_hash": "0" * 64, "source_file": 1 << 62}
        stats = {"numRecords": share, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(bounds, 0)}
        part = Part(name, int(share * _ROW_BYTES * _TABLE_SHARE), share, json.dumps(stats))
        results.append(CellResult(cell, bucket, share, (part,), None, {}, 0, encoded=share))
    return WaveResult(wave, tuple(results))
