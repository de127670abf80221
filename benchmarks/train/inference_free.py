"""Queries without a model: how good, and how fast?

    python -m benchmarks.train.inference_free SHARED_DATA [--quick] [--work FOLDER] [--seeds 3]

SciFact through the whole pipeline (train, export, encode, index, search by text), documents of splade-tiny cut at 128
tokens: with its own queries (two encoders), with queries weighed by IDF, and so again after its documents were trained
against such queries on SciFact's training pairs, with FLOPS behind an l0 mask, and with query weights that are learned
with them. nDCG@10 of the test claims with L0 and
FLOPS, BM25 beside it. Then what a query takes: weighing its terms, finding and weighing them, and the model for
comparison. Prints tables and ``RESULT {json}``; what is done lies in the work folder and is used again.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lsr_prod import Searcher, SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation import evaluate_index
from lsr_prod.indexing import build_index
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.model.export import export_bundle
from lsr_prod.search.query_encoder import QueryEncoder
from lsr_prod.training.chain import run_chain
from quickstart.models import model_folder

# All of it ours: no paper trains on a thousand claims.
RECIPE: dict[str, Any] = {
    "batch": {"queries": 32, "chunk": 16},
    "steps": 200,
    "objective": {
        "losses": [{"loss": "info_nce", "temperature": 4.0}],
        "sparsity": {
            "regularizers": [{"regularizer": "flops", "document": 0.003, "l0_mask": 128, "ramp": "quadratic"}]
        },
    },
    "optimizer": {"learning_rate": 2e-4, "warmup_share": 0.1},
    "checkpoint_every": 100,
}
ROUNDS = 5  # over all queries, of which the timings are
LIMIT_US = {"weigh": 50.0, "find and weigh": 200.0}


def main(argv: Sequence[str]) -> int:
    """Train, index, measure and print; 1: a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with scifact/")
    parser.add_argument("--quick", action="store_true", help="a few steps and documents: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models, tables and indexes")
    parser.add_argument("--seeds", type=int, default=3, help="trainings")
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inference-free-")))
        stack.enter_context(ray_session(RaySettings(num_cpus=2)))
        values = experiment(asked.data / "scifact", work.absolute(), seeds=asked.seeds, quick=asked.quick)
    print_result({**values, "seconds": round(time.perf_counter() - start)})
    return 0 if values["within_limits"] and (asked.quick or values["trained_beats_untrained"]) else 1


def experiment(data: Path, work: Path, *, seeds: int, quick: bool) -> dict[str, Any]:
    """All systems; returns the figures of ``RESULT``."""
    work.mkdir(parents=True, exist_ok=True)
    corpus = write_data(data, work, documents=300 if quick else None)
    starts = {name: work / name for name in ("model", "idf", "learned")}
    for name, folder in starts.items():
        SparseEncoder.load(
            model_folder("splade-tiny"), document_max_length=128, query_max_length=64, query_encoder=name
        ).save(folder)
    systems = {"two encoders": starts["model"], "idf, untrained": starts["idf"]}
    for seed in range(1 if quick else seeds):
        for kind in ("idf", "learned"):
            systems[f"{kind}, trained, seed {seed}"] = train(
                work, starts[kind], corpus, data / "pairs_train.jsonl", seed, steps=4 if quick else None
            )
    reports = {name: measure(name, model, corpus, data, work) for name, model in systems.items()}
    table = Table("system", "nDCG@10", "L0 query", "L0 document", "FLOPS", "bm25 nDCG@10", title="SciFact, test claims")
    for name, report in reports.items():
        figures = [report[key] for key in ("ndcg", "l0_query", "l0_document", "flops", "bm25")]
        table.add_row(name, *(f"{value:.3f}" for value in figures))
    Console().print(table)
    trained, learned = (
        [report["ndcg"] for name, report in reports.items() if name.startswith(f"{kind}, trained")]
        for kind in ("idf", "learned")
    )
    latencies = time_queries(work, data, quick=quick)
    return {
        "ndcg_two_encoders": reports["two encoders"]["ndcg"],
        "ndcg_untrained": reports["idf, untrained"]["ndcg"],
        "ndcg_trained": trained,
        "ndcg_learned": learned,
        "ndcg_bm25": reports["two encoders"]["bm25"],
        "trained_beats_untrained": min(trained) > reports["idf, untrained"]["ndcg"],
        "systems": reports,
        **latencies,
    }


def write_data(data: Path, work: Path, *, documents: int | None) -> Path:
    """The corpus as it is encoded, title and text in one field; the judged documents come first."""
    corpus = work / "corpus.jsonl"
    with (data / "qrels" / "test.tsv").open(encoding="utf-8") as file:
        relevant = {line.split("\t")[1] for line in file}
    rows = [json.loads(line) for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: str(row["_id"]) not in relevant)
    lines = [{"_id": str(row["_id"]), "text": f"{row['title']} {row['text']}"} for row in rows[:documents]]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return corpus


def train(work: Path, start: Path, corpus: Path, pairs: Path, seed: int, *, steps: int | None) -> Path:
    """The model directory of one training; the documents of the corpus weigh its queries."""
    stage = {
        **RECIPE,
        "data": {"paths": [str(pairs)], "kind": "pairs", "columns": {"positive": "pos"}},
        "idf_corpus": {"paths": [str(corpus)], "kind": "texts"},
        "seed": seed,
        **({} if steps is None else {"steps": steps}),
    }
    output = work / f"trained-{start.name}-{seed}-{stage['steps']}"
    settings = {"model": str(start), "work": str(work / "chain"), "output": str(output), "stages": [stage]}
    run_chain(Deployment.model_validate({"train": settings}))
    return output


def measure(name: str, model: Path, corpus: Path, data: Path, work: Path) -> dict[str, float]:
    """Export, encode, index and evaluate a model."""
    place = work / "systems" / name.replace(", ", "-").replace(" ", "-")
    bundle, table, index = (str(place / part) for part in ("bundle", "table", "index"))
    deployment = Deployment.model_validate(
        {
            "export": {"model": str(model), "output": bundle},
            "source": {"paths": [str(corpus)], "id_field": "_id", "text_fields": ["text"], "stored_fields": ["text"]},
            "encode": {"bundle": bundle, "table": table, "buckets": 4},
            "index": {"bundle": bundle, "table": table, "output": index, "text_fields": ["text"]},
            "evaluate": {
                "index": index,
                "queries": str(data / "queries.jsonl"),
                "qrels": str(data / "qrels" / "test.tsv"),
                "measures": ["nDCG@10"],
                "thresholds": [0.0],
            },
        }
    )
    assert deployment.export is not None
    export_bundle(deployment.export)
    encode_corpus(deployment)
    build_index(deployment)
    found = evaluate_index(deployment).result()
    systems = {report["name"]: report for report in found["systems"]}
    return {
        "ndcg": systems["threshold 0"]["measures"]["nDCG@10"],
        "bm25": systems["bm25"]["measures"]["nDCG@10"],
        "text_p50_ms": systems["threshold 0"]["text_p50_ms"],
        **{key: float(found[key]) for key in ("l0_query", "l0_document", "flops")},
    }


def time_queries(work: Path, data: Path, *, quick: bool) -> dict[str, Any]:
    """Microseconds of a query's vector, p50 and p95, one thread, queries in turn."""
    lines = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines[: 100 if quick else None]]
    searcher = Searcher.open(work / "systems" / "idf-untrained" / "index")
    snapshot, encoder = searcher.snapshot, QueryEncoder(threads=1, verify=True, bundle=None)
    reader, weights = encoder.reader(snapshot), snapshot.term_weights
    terms = [reader.query(text) for text in texts]
    model = Searcher.open(work / "systems" / "two-encoders" / "index")
    timings = {
        "weigh": timed(lambda i: weights.weigh(*terms[i]), len(texts)),
        "find and weigh": timed(lambda i: searcher.encode([texts[i]]), len(texts)),
        "search by IDF, k=10": timed(lambda i: searcher.search(texts[i], 10), len(texts)),
        "encode by the model": timed(lambda i: model.encode([texts[i]]), len(texts)),
        "search by the model, k=10": timed(lambda i: model.search(texts[i], 10), len(texts)),
    }
    table = Table("what", "p50 us", "p95 us", "limit of p50", title=f"one query of {len(texts)}, one thread")
    for name, (p50, p95) in timings.items():
        table.add_row(name, f"{p50:.1f}", f"{p95:.1f}", f"{LIMIT_US[name]:.0f}" if name in LIMIT_US else "")
    Console().print(table)
    return {
        "latency_us": {name: {"p50": p50, "p95": p95} for name, (p50, p95) in timings.items()},
        "within_limits": all(timings[name][0] < limit for name, limit in LIMIT_US.items()),
    }


def timed(work: Callable[[int], object], count: int) -> tuple[float, float]:
    """p50 and p95 of ``count`` calls in ``ROUNDS`` rounds, microseconds, after a round that warms up."""
    spent = []
    for round_ in range(ROUNDS + 1):
        for i in range(count):
            start = time.perf_counter_ns()
            work(i)
            if round_:
                spent.append((time.perf_counter_ns() - start) / 1e3)
    p50, p95 = np.percentile(spent, [50, 95]).tolist()
    return p50, p95


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
