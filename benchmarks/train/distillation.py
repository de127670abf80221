"""Does distillation from a dense teacher improve a sparse encoder? all-MiniLM-L6-v2 teaches splade-tiny on tldr.

    python -m benchmarks.train.distillation SHARED_DATA [--quick] [--work FOLDER] [--seeds 3] [--steps 60]

Rows are training pairs with hard negatives from the untrained model, scored by `lsr-prod score` with the dense teacher.
Every objective gets the same rows, steps, batches and FLOPS weights; only its losses differ. Models are evaluated on
held-out queries over a part of the pages, next to the untrained model and the teacher. Prints a table, paired tests and
``RESULT {json}``; models and measurements in the work folder are reused by the next run.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch

from benchmarks.train.paired import compare
from benchmarks.train.pruning_data import Pair, few_documents, split_tldr, training_set
from benchmarks.train.pruning_models import encode, measure, train
from lsr_prod import SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, FinetuneSettings, RaySettings, ScoreSettings, TeacherModelSettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import LevelReport
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.scoring.job import score_training_rows
from lsr_prod.training.scoring.transformers import DenseEncoder
from quickstart.models import model_folder

LOSSES: dict[str, list[dict[str, Any]]] = {
    "info_nce": [{"loss": "info_nce"}],
    "info_nce + kl": [{"loss": "info_nce"}, {"loss": "kl"}],
}
FLOPS = 0.015
NEGATIVES, RANKS = 3, (1, 20)  # hard negatives per row, drawn from these ranks of the untrained model
QUERIES = 16  # of a step
TEACHER = {"kind": "dense", "pooling": "mean", "normalize": True, "scale": 20.0}


def main(argv: Sequence[str]) -> int:
    """Score, train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/")
    parser.add_argument("--quick", action="store_true", help="a few rows, steps and documents: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models and measurements")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each objective")
    parser.add_argument("--steps", type=int, default=60, help="steps of a training")
    given = parser.parse_args(argv)
    log_to_stderr()
    began = time.perf_counter()
    rows, queries, documents, steps, seeds = 1500, 600, 1500, given.steps, given.seeds
    if given.quick:
        rows, queries, documents, steps, seeds = 48, 20, 60, 2, 1
    torch.set_num_threads(1)
    with ExitStack() as stack:
        work = given.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distillation-")))
        work = work.absolute()
        work.mkdir(parents=True, exist_ok=True)
        split = split_tldr(given.data / "tldr_en")
        asked = dict(list(split.test.queries.items())[:queries])
        qrels = [qrel for qrel in split.test.qrels if qrel.query_id in asked]
        collection = few_documents(Collection(split.test.documents, asked, qrels), documents)
        pairs = random.Random(0).sample(split.train, rows)
        values = experiment(work, pairs, collection, steps=steps, seeds=seeds)
    print_result({**values, "steps": steps, "rows": rows, "seconds": round(time.perf_counter() - began)})
    return 0


def experiment(
    work: Path, pairs: Sequence[Pair], collection: Collection, *, steps: int, seeds: int
) -> dict[str, object]:
    """Train and measure every objective; returns the figures of ``RESULT``."""
    start = work / "start"
    if not start.exists():
        SparseEncoder.load(model_folder("splade-tiny"), document_max_length=48, query_max_length=24).save(start)
    scored, share = score(work, start, pairs)
    data = TrainingDataSettings(paths=[str(scored)], kind="scores")
    _, rows = training_set(data, start, work, query_length=24, document_length=48)
    untrained = measured(SparseEncoder.load(start), collection)
    found: dict[str, list[LevelReport]] = {name: [] for name in LOSSES}
    for seed in range(seeds):
        for name, losses in LOSSES.items():
            folder = work / f"{name.replace(' ', '')}-{seed}-{steps}"
            if not folder.exists():
                train(SparseEncoder.load(start), rows, stage(data, losses, steps, seed)).save(folder)
            found[name].append(measured(SparseEncoder.load(folder), collection))
    values: dict[str, object] = {
        "untrained": untrained.measures["RR@10"],
        "teacher": teacher_quality(collection),
        "teacher_positive_first": share,
        "queries": len(collection.queries),
        "documents": len(collection.documents),
    }
    pages = [qrel.doc_id for qrel in collection.qrels]
    for name, reports in found.items():
        values[name] = [round(report.measures["RR@10"], 4) for report in reports]
        values[f"{name}, mean"] = float(np.mean([report.measures["RR@10"] for report in reports]))
        values[f"{name}, flops"] = float(np.mean([report.flops for report in reports]))
        if name != "info_nce":
            ours, theirs = ([one.by_query["RR@10"] for one in found[arm]] for arm in (name, "info_nce"))
            test = compare(ours, theirs, pages)
            values[f"{name}, difference"], values[f"{name}, p"] = test.difference, test.p
            values[f"{name}, wins"] = f"{test.wins}/{test.seeds}"
    print_table(
        "distillation: RR@10",
        {name: f"{value:.4f}" if isinstance(value, float) else str(value) for name, value in values.items()},
    )
    return values


def score(work: Path, start: Path, pairs: Sequence[Pair]) -> tuple[Path, float]:
    """Score the pairs and hard negatives by the job; return its output folder and ``positive_first_share``."""
    rows = work / "negatives.jsonl"
    if not rows.exists():
        lines = hard_negatives(SparseEncoder.load(start), pairs)
        rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    settings = {
        "data": {"paths": [str(rows)], "kind": "negatives"},
        "teacher": TEACHER | {"model": str(model_folder("minilm"))},
        "output": str(work / "scored"),
    }
    with ray_session(RaySettings(num_cpus=1)):
        summary = score_training_rows(Deployment(score=ScoreSettings.model_validate(settings)))
    return work / "scored", float(summary["positive_first_share"])


def hard_negatives(encoder: SparseEncoder, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Rows of kind negatives: pages near the top for a query, apart from its own page."""
    draw = random.Random(0)
    pages = sorted({page for _, page in pairs})
    size = encoder.card.vocabulary_size
    documents = matrix(encode(encoder, pages, "document"), size)
    queries = matrix(encode(encoder, [query for query, _ in pairs], "query"), size)
    scores = (queries @ documents.T).toarray()  # [rows, pages]
    rows = []
    for (query, own), row in zip(pairs, scores, strict=True):
        near = [pages[i] for i in np.argsort(-row, kind="stable")[RANKS[0] : RANKS[1]] if pages[i] != own]
        rows.append({"query": query, "positive": own, "negatives": draw.sample(near, NEGATIVES)})
    return rows


def matrix(batch: SparseBatch, size: int) -> scipy.sparse.csr_matrix:
    """Vectors as a sparse matrix [n, V]."""
    return scipy.sparse.csr_matrix((batch.weights, batch.terms, batch.offsets), shape=(len(batch), size))


def stage(data: TrainingDataSettings, losses: list[dict[str, Any]], steps: int, seed: int) -> FinetuneSettings:
    """Settings of one training."""
    flops = {"regularizer": "flops", "query": FLOPS, "document": FLOPS}
    return FinetuneSettings.model_validate(
        {
            "data": data,
            "batch": {"queries": QUERIES, "negatives": NEGATIVES},
            "steps": steps,
            "objective": {"losses": losses, "sparsity": {"regularizers": [flops]}},
            "optimizer": {"learning_rate": 3e-4, "warmup_share": 0.1},
            "query_max_length": 24,
            "document_max_length": 48,
            "seed": seed,
        }
    )


def measured(encoder: SparseEncoder, collection: Collection) -> LevelReport:
    """Quality and cost without pruning or threshold."""
    (report,) = measure(encoder, collection, levels=[(0, 0)], thresholds=[0.0], measures=["RR@10"])
    return report


def teacher_quality(collection: Collection) -> float:
    """RR@10 of the teacher itself over the same documents."""
    folder = model_folder("minilm")
    settings = TeacherModelSettings.model_validate(TEACHER | {"model": str(folder)})
    encoder = DenseEncoder(folder, settings, device="cpu", batch_tokens=4096, field="teacher")
    ids = list(collection.documents)
    documents = _vectors(encoder, list(collection.documents.values()), "document")
    scores = _vectors(encoder, list(collection.queries.values()), "query") @ documents.T
    own = [ids.index(qrel.doc_id) for qrel in collection.qrels]
    ranks = (scores > scores[np.arange(len(own)), own][:, None]).sum(axis=1) + 1
    return float(np.where(ranks <= 10, 1 / ranks, 0).mean())


def _vectors(encoder: DenseEncoder, texts: Sequence[str], kind: Kind) -> npt.NDArray[np.float32]:
    found, _ = encoder.encode(texts, kind)
    return np.stack([found[i] for i in range(len(texts))])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
