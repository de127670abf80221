"""Queries without a model: which kind is best on three collections, and what does a query take?

    python -m benchmarks.train.inference_free SHARED_DATA [--quick] [--work FOLDER] [--seeds 3] [--collections NAME ...]

Pages of tldr asked for by descriptions of examples, abstracts of SciFact by claims, and packages of Debian by synopses,
2,000 documents each, through the jobs: export, encode and index splade-tiny untrained, mine two negatives for a query
from that index, with the scores of all-MiniLM-L6-v2, train, and publish again. Documents are cut at 128 tokens, and at
64 in training. Queries are weighed by IDF or by learned weights; with the latter also with l0 activation, distilled (KL
divergence from the teacher's scores next to InfoNCE), and with the rate that ``learning_rate: auto`` finds. All have
the same rows, batches and regularizer; seeds change the order of the rows. Beside them: two encoders and IDF without
training, BM25 over words and over word pieces, and hybrids.

Then what a query takes: weighing its terms, finding and weighing them, and the model for comparison. Prints tables and
``RESULT {json}``; what is done lies in the work folder and is used again. 1: a limit of a timing was missed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.train.held_out import Judged, figures, judged, published, show
from benchmarks.train.pruning_data import Pair, few_documents, read_lines, scifact_pairs, scifact_test, split_tldr
from lsr_prod import Searcher, SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.evaluation.validation import Collection
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.search.query_encoder import QueryEncoder
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.chain import run_chain
from lsr_prod.training.negatives.job import mine_negatives
from quickstart.models import model_folder

DOCUMENTS, PAIRS, STEPS = 2_000, 1_600, 100
LEARNED = {"stage": "set_encoder", "query_encoder": "learned"}
INFO_NCE = {"loss": "info_nce", "temperature": 4.0}
VARIANTS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {  # stages before, and changes of the fine-tuning
    "idf": ([], {}),
    "learned": ([LEARNED], {}),
    "learned, l0 activation": ([{**LEARNED, "activation": "l0"}], {}),
    "learned, distilled": ([LEARNED], {"losses": [INFO_NCE, {"loss": "kl", "temperature": 4.0}]}),
    "learned, rate found": ([LEARNED], {"learning_rate": "auto"}),
}
ROUNDS = 5  # over all queries, of which the timings are
LIMIT_US = {"weigh": 50.0, "find and weigh": 200.0}


def main(argv: Sequence[str]) -> int:
    """Train, index, measure and print; 1: a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/, scifact/ and debian_packages/")
    parser.add_argument("--quick", action="store_true", help="a few steps and documents: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models, tables and indexes")
    parser.add_argument("--seeds", type=int, default=3, help="trainings")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inference-free-")))
        stack.enter_context(ray_session(RaySettings(num_cpus=2)))
        values: dict[str, object] = {}
        for name in asked.collections:
            found = experiment(name, asked.data, work.absolute(), seeds=asked.seeds, quick=asked.quick)
            show(found, name)
            values[name] = figures(found)
        latencies = time_queries(folder_of(asked.collections[0], asked.data, work.absolute()))
    print_result({**values, **latencies, "seconds": round(time.perf_counter() - start)})
    return 0 if latencies["within_limits"] else 1


def experiment(name: str, data: Path, work: Path, *, seeds: int, quick: bool = False) -> Judged:
    """All systems on one collection."""
    work = folder_of(name, data, work)
    work.mkdir(parents=True, exist_ok=True)
    write_data(*COLLECTIONS[name](data), work, quick=quick)
    starts = {"two encoders, untrained": "model", "idf, untrained": "idf"}
    for kind in starts.values():
        if not (work / kind).exists():
            SparseEncoder.load(
                model_folder("splade-tiny"), document_max_length=128, query_max_length=64, query_encoder=kind
            ).save(work / kind)
        published(work / kind, work, work / "runs" / kind)
    mine(work)
    runs = {label: [kind] for label, kind in starts.items()}
    for seed in range(1 if quick else seeds):
        for label in VARIANTS:
            model = train(work, label, seed, steps=4 if quick else STEPS)
            published(model, work, work / "runs" / model.name)
            runs.setdefault(label, []).append(model.name)
    return judged(work, "idf", runs)


def folder_of(name: str, data: Path, work: Path) -> Path:
    """The folder of a collection; other pairs have another one, so that no model of earlier pairs is used again."""
    pairs, _ = COLLECTIONS[name](data)
    return work / f"{name}-{digest_json(pairs)[:12]}"


def write_data(pairs: Sequence[Pair], collection: Collection, work: Path, *, quick: bool) -> None:
    """A BEIR folder, its documents as texts for IDF, and the pairs to mine for, drawn once for all seeds."""
    folder = work / "collection"
    if folder.exists():
        return
    drawn = random.Random(0).sample(list(pairs), min(len(pairs), 48 if quick else PAIRS))
    if quick:
        qrels = list(collection.qrels)[:20]
        queries = {one.query_id: collection.queries[one.query_id] for one in qrels}
        collection = Collection(collection.documents, queries, qrels)
    searched = few_documents(collection, 100 if quick else DOCUMENTS)
    rows = [{"_id": doc_id, "text": text} for doc_id, text in searched.documents.items()]
    _write(work / "pairs.jsonl", [{"query": query, "positive": text} for query, text in drawn])
    draft = work / "draft"
    (draft / "qrels").mkdir(parents=True, exist_ok=True)
    _write(draft / "corpus.jsonl", rows)
    _write(draft / "queries.jsonl", [{"_id": one, "text": text} for one, text in searched.queries.items()])
    lines = "".join(f"{one.query_id}\t{one.doc_id}\t{one.relevance}\n" for one in searched.qrels)
    (draft / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines, encoding="utf-8")
    draft.rename(folder)


def mine(work: Path) -> None:
    """Two negatives of every query, from the index of IDF-weighted queries, and the teacher's scores."""
    if (work / "mined").exists():
        return
    settings = {
        "data": {"paths": [str(work / "pairs.jsonl")], "kind": "pairs"},
        "index": str(work / "runs" / "idf" / "index"),
        "output": str(work / "mining"),
        "text_fields": ["text"],
        "depth": 30,
        "negatives": 2,
        "at_least": 2,
        "margin": 0.0,
        "teacher": {
            "model": {
                "kind": "dense", "model": str(model_folder("minilm")), "pooling": "mean", "normalize": True,
                "scale": 20.0, "max_length": 64,
            }
        },
        "scores": True,
        "slice_kilobytes": 1_000,  # texts of a slice are encoded once
    }  # fmt: skip
    mine_negatives(Deployment.model_validate({"mine": settings}))
    (work / "mining").rename(work / "mined")


def train(work: Path, label: str, seed: int, *, steps: int) -> Path:
    """The model directory of one training; the searched documents give its queries their first weights."""
    before, changes = VARIANTS[label]
    output = work / "trained" / f"{label.replace(', ', '-').replace(' ', '-')}-{seed}-{steps}"
    stage = {
        "stage": "finetune",
        "data": {"paths": [str(work / "mined" / "*.parquet")], "kind": "scores"},
        "idf_corpus": {"paths": [str(work / "collection" / "corpus.jsonl")], "kind": "texts"},
        "batch": {"queries": 8, "negatives": 2},
        "steps": steps,
        "document_max_length": 64,
        "card_document_max_length": 128,
        "objective": {
            "losses": changes.get("losses", [INFO_NCE]),
            "sparsity": {
                "regularizers": [{"regularizer": "flops", "document": 0.003, "l0_mask": 128, "ramp": "quadratic"}]
            },
        },
        "optimizer": {"learning_rate": changes.get("learning_rate", 2e-4), "warmup_share": 0.1},
        "seed": seed,
    }
    if not output.exists():
        chain = {"model": str(work / "idf"), "work": str(work / "chain"), "output": str(output), "workers": 1}
        run_chain(Deployment.model_validate({"train": {**chain, "stages": [*before, stage]}}))
    return output


def time_queries(work: Path) -> dict[str, Any]:
    """Microseconds of a query's vector, p50 and p95, one thread, queries in turn."""
    texts = [row["text"] for row in read_lines(work / "collection" / "queries.jsonl")][:300]
    searcher = Searcher.open(work / "runs" / "idf" / "index")
    snapshot, encoder = searcher.snapshot, QueryEncoder(threads=1, verify=True, bundle=None)
    reader, weights = encoder.reader(snapshot), snapshot.term_weights
    terms = [reader.query(text) for text in texts]
    model = Searcher.open(work / "runs" / "model" / "index")
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


def debian(data: Path) -> tuple[list[Pair], Collection]:
    """Synopses of 1,000 packages over 2,000 descriptions; trained on others, none of a held-out synopsis."""
    rows = read_lines(data / "debian_packages" / "pairs_train.jsonl")
    random.Random(0).shuffle(rows)
    held_out, others = rows[:1000], rows[1000:]
    documents = {row["id"]: row["pos"] for row in [*held_out, *others[: DOCUMENTS - len(held_out)]]}
    qrels = [ir_measures.Qrel(row["id"], row["id"], 1) for row in held_out]
    return [(row["query"], row["pos"]) for row in others], Collection(
        documents, {row["id"]: row["query"] for row in held_out}, qrels
    )


def scifact(data: Path) -> tuple[list[Pair], Collection]:
    """The test claims over the abstracts that they cite and others; no pair has one of the former."""
    return scifact_pairs(data / "scifact"), scifact_test(data / "scifact")


def tldr(data: Path) -> tuple[list[Pair], Collection]:
    """Descriptions of examples of 600 held-out pages."""
    split = split_tldr(data / "tldr_en")
    return split.train, split.test


def _write(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


COLLECTIONS: dict[str, Callable[[Path], tuple[list[Pair], Collection]]] = {
    "tldr": tldr,
    "scifact": scifact,
    "debian": debian,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
