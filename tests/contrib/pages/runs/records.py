"""Records of runs as jobs write them, without the jobs."""

import itertools
import json
from pathlib import Path

from lsr_prod.encoding.plans.plan_header import ListDigest, PlanHeader
from lsr_prod.encoding.results import BusyTime, Counts
from lsr_prod.encoding.run_records import WaveRecorder, save_run
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER, create_sparse_table
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json, record_bytes
from lsr_prod.training.lineage import StageRecord, save_record
from tests.encoding.made_tables import PROPERTIES, as_wave, make_cell, recount

HOSTILE = "</script><img src=x onerror=alert(1)>"


def encode_records(root: Path, *, waves: int = 3, reason: str = "broken_json") -> tuple[Store, str]:
    """A table with the records of one run of a plan, whose waves take 10 s on two encoders, which work 14 s of 20."""
    table, quarantine = Store(str(root / "table"), {}), Store(str(root / "quarantine"), {})
    header = PlanHeader(None, "b" * 64, *(ListDigest(1, "f" * 64),) * 2, waves, 4, {}, {"buckets": 2})
    plan = digest_json(header.to_json())
    table.put_new(f"{PROTOCOL_FOLDER}/plans/{plan}.json", record_bytes(header.to_json()))
    create_sparse_table(table, PROPERTIES, plan)
    create_quarantine(quarantine)
    recorder = WaveRecorder(table, plan, 2, started=100.0, encoders=lambda: 2)
    for wave in range(waves):
        cell = make_cell(table, quarantine, wave, "abcdefgh"[: 4 + wave], "x" * wave)
        cell = recount(cell, quarantined_by_reason={reason: wave} if wave else {})
        began = 100.0 + 8 * wave
        work = Counts(encoded=4 + wave, tokens=1000, padded_tokens=1250)
        recorder.spend(wave, work, BusyTime(14.0, began, began + 10))
        recorder.committed(as_wave(wave, cell), 0.5)
    summary = {
        "seconds": 40.0, "encode_seconds": 26.0, "busy_share": 0.7, "actors": 2, "threads_per_actor": 3, "encoded": 15,
        "tokens": 3000, "docs_per_s": 0.4, "waves_skipped": 0, "rows_in": 18, "quarantined": 3, "requests": 99,
        "bytes_read": 10, "bytes_written": 20, "quarantined_by_reason": {reason: 3},
    }  # fmt: skip
    save_run(table, plan, 2, summary)
    return table, plan


def training_records(root: Path, *, steps: int = 40, kind: str = "finetune") -> tuple[Store, list[str]]:
    """A work store with two finished stages of one chain and a third that is not finished."""
    work = Store(str(root / "work"), {})
    models = [digit * 64 for digit in "abc"]
    stages = [digit * 64 for digit in "123"]
    for number, (parent, model) in enumerate(itertools.pairwise(models)):
        training = {"stage": "rescale_head" if number == 0 else kind}
        summary = {"seconds": 5.0, "steps": steps, "loss": 1.5, "l0_document": 30.0, "best": 0.4} if number else {}
        save_record(work, stages[number], StageRecord(model, parent, training, summary))
    for stage, first in ((stages[1], 0), (stages[2], 1)):
        lines = []
        for step in range(first, steps, 2):
            values = {
                "loss": 5.0 / (1 + step), "loss_info_nce": 4.0 / (1 + step), "l0_query": 10.0,
                "l0_document": 900 / (1 + step),
                "dead_terms": step, "grad_norm": "nan", "learning_rate": 1e-4, "docs_per_s": None,
            }  # fmt: skip
            if step % 10 == first:
                values |= {"validation/RR@10": 0.1 + step / 100, "validation/flops": 0.5, f"validation/{HOSTILE}": 0.2}
            lines.append(json.dumps({"step": step, "time": 1.7e9 + step, "values": values}))
        work.put_new(f"runs/{stage}/steps.jsonl", "\n".join([*lines, '{"step": 4']).encode())
    return work, stages
