"""From pairs of questions and answers to a published index: the path of ``docs/training.md``, and what it gives.

    python -m benchmarks.train.own_pairs SHARED_DATA [--work FOLDER] [--steps 200] [--seeds 3] [--quick]

KorQuAD: 5,774 questions about 961 paragraphs of Wikipedia. A quarter of the paragraphs is held out with its questions;
all paragraphs, and 6,647 pages of tldr as distractors, are searched. No Korean model is at hand, so the encoder starts
from random weights: two layers x 256 over the word pieces of KcBERT, its head the identity, so that a text is its own
word pieces before any training. The jobs are those of the page: export, encode, index, mine, train (inference-free
queries), export, encode, index. Compared are BM25 over the full text (words, by the index's own analysis), IDF-weighted
queries before training, the trained model, and the hybrid of the trained model and BM25.

Prints a table with paired differences to BM25, and ``RESULT {json}``; finished parts are used again.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.train.korean import save_small_bert, write_data
from benchmarks.train.paired import compare
from lsr_prod import Searcher, SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.export import export_bundle
from lsr_prod.indexing import build_index
from lsr_prod.jobs.terminal.run import log_to_stderr, print_result
from lsr_prod.negatives.job import mine_negatives
from lsr_prod.search import Hybrid, SearchResult
from lsr_prod.training.chain import run_chain

MEASURES = ["RR@10", "nDCG@10", "R@100"]
LENGTH = 320  # tokens of a paragraph
QUERY_LENGTH = 32


def main(argv: Sequence[str]) -> int:
    """Run the path, print; 1: not significantly ahead of BM25 without the hybrid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with korquad_dev/, tldr_ko/ and vocabularies/")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps what was made")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="three steps, one seed: does it work at all?")
    asked = parser.parse_args(argv)
    log_to_stderr()
    began = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="own-pairs-")))
        work = work.absolute()
        stack.enter_context(ray_session(RaySettings(num_cpus=2)))
        steps, seeds = (3, 1) if asked.quick else (asked.steps, asked.seeds)
        start = prepare(asked.data, work)
        published(start, work, work / "runs" / "start")
        mine(work)
        trained = [train(start, work, steps=steps, seed=seed) for seed in range(seeds)]
        for number, model in enumerate(trained):
            published(model, work, work / "runs" / f"trained-{steps}-{number}")
        found = measured(work, [f"trained-{steps}-{number}" for number in range(seeds)])
    print_result({**found, "seconds": round(time.perf_counter() - began)})
    return 0 if asked.quick or (found["trained"]["difference"] > 0 and found["trained"]["p"] < 0.05) else 1


def prepare(data: Path, work: Path) -> Path:
    """Write the collection and its pairs, and the model to start from: inference-free queries over word pieces."""
    start = work / "start"
    if not start.exists():
        write_data(data, work)
        lines = (work / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
        (work / "qa.jsonl").write_text("\n".join(lines[-_answers(data, work) :]) + "\n", encoding="utf-8")
        save_small_bert(data / "vocabularies" / "kcbert-base-vocab.txt", work / "bert")
        SparseEncoder.load(
            work / "bert", query_encoder="idf", query_max_length=QUERY_LENGTH, document_max_length=LENGTH
        ).save(start)
    return start


def _answers(data: Path, work: Path) -> int:
    """Number of the pairs that are questions of KorQuAD; ``write_data`` writes them last."""
    held_out = sum(1 for _ in (work / "collection" / "qrels" / "test.tsv").open(encoding="utf-8")) - 1
    (qrels,) = (data / "korquad_dev" / "qrels").glob("*.tsv")
    return sum(1 for _ in qrels.open(encoding="utf-8")) - 1 - held_out


def mine(work: Path) -> None:
    """Hard negatives for the training questions, from the index of the model before training."""
    settings = {
        "data": {"paths": [str(work / "qa.jsonl")], "kind": "pairs"},
        "index": str(work / "runs" / "start" / "index"),
        "output": str(work / "mined"),
        "text_fields": ["text"],
        "depth": 50,
        "negatives": 4,
    }
    mine_negatives(Deployment.model_validate({"mine": settings}))


def train(start: Path, work: Path, *, steps: int, seed: int) -> Path:
    """Documents against IDF-weighted queries: InfoNCE over the batch and one mined negative."""
    stage = {
        "stage": "finetune",
        "data": {"paths": [str(work / "mined" / "*.parquet")], "kind": "negatives"},
        "batch": {"queries": 12, "negatives": 1},
        "steps": steps,
        "objective": {
            "losses": [{"loss": "info_nce", "temperature": 4.0}],
            "sparsity": {
                "regularizers": [{"regularizer": "flops", "document": 0.003, "l0_mask": 200, "ramp": "quadratic"}]
            },
        },
        "optimizer": {"learning_rate": 2e-4, "warmup_share": 0.1},
        "dropout": 0.0,
        "seed": seed,
    }
    output = work / "trained" / f"{steps}-{seed}"
    chain = {"model": str(start), "output": str(output), "work": str(work / "work"), "stages": [stage]}
    run_chain(Deployment.model_validate({"train": chain}))
    return output


def published(model: Path, work: Path, folder: Path) -> None:
    """Export, encode and index, by the jobs; skipped if done."""
    if (folder / "done").exists():
        return
    bundle, table, index = (str(folder / name) for name in ("bundle", "table", "index"))
    deployment = Deployment.model_validate(
        {
            "source": {"paths": [str(work / "collection")], "text_fields": ["text"], "stored_fields": ["text"]},
            "export": {"model": str(model), "output": bundle},
            "encode": {"bundle": bundle, "table": table},
            "index": {"table": table, "bundle": bundle, "output": index, "text_fields": ["text"], "bm25": True},
        }
    )
    assert deployment.export is not None
    export_bundle(deployment.export)
    encode_corpus(deployment)
    build_index(deployment)
    (folder / "done").touch()


def measured(work: Path, names: Sequence[str]) -> dict[str, Any]:
    """Every system by query, and its difference to BM25."""
    collection = work / "collection"
    judged = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    start = Searcher.open(work / "runs" / "start" / "index")
    trained = [Searcher.open(work / "runs" / name / "index") for name in names]
    systems: dict[str, list[Callable[[str], SearchResult]]] = {
        "bm25": [lambda text: start.bm25(text, k=100)],
        "untrained": [lambda text: start.search(text, k=100)],
        "untrained, hybrid": [lambda text: start.search(text, k=100, hybrid=Hybrid())],
        "trained": [_plain(one) for one in trained],
        "trained, hybrid": [_hybrid(one) for one in trained],
    }
    values = {name: [_values(answer, judged) for answer in answers] for name, answers in systems.items()}
    owners = {qrel.query_id: qrel.doc_id for qrel in judged.qrels}
    groups = [owners[query_id] for query_id in judged.queries]
    table = Table("system", *MEASURES, "difference to BM25 (RR@10)", "p", title="held-out questions of KorQuAD")
    found: dict[str, Any] = {"questions": len(judged.queries), "documents": start.documents}
    for name, seeds in values.items():
        means = {measure: float(np.mean([one[measure].mean() for one in seeds])) for measure in MEASURES}
        ours = [one["RR@10"] for one in seeds]
        against = compare(ours, [values["bm25"][0]["RR@10"]] * len(ours), groups)
        interval = f"{against.difference:+.4f} ({against.low:+.4f} to {against.high:+.4f})"
        table.add_row(name, *(f"{mean:.4f}" for mean in means.values()), interval, f"{against.p:.2g}")
        rounded = {measure: round(mean, 4) for measure, mean in means.items()}
        found[name] = {**rounded, "difference": round(against.difference, 4), "p": against.p}
        found[name] |= {"seeds": [round(float(one.mean()), 4) for one in ours]}
    Console(width=140).print(table)
    return found


def _plain(searcher: Searcher) -> Callable[[str], SearchResult]:
    return lambda text: searcher.search(text, k=100)


def _hybrid(searcher: Searcher) -> Callable[[str], SearchResult]:
    return lambda text: searcher.search(text, k=100, hybrid=Hybrid())


def _values(answer: Callable[[str], SearchResult], judged: JudgedQueries) -> dict[str, npt.NDArray[np.float64]]:
    """Each measure of every query."""
    run = [
        ir_measures.ScoredDoc(query_id, hit.doc_id, hit.score)
        for query_id, text in judged.queries.items()
        for hit in answer(text).hits
    ]
    place = {query_id: number for number, query_id in enumerate(judged.queries)}
    values = {name: np.zeros(len(place)) for name in MEASURES}
    parsed = {ir_measures.parse_measure(name): name for name in MEASURES}
    for one in ir_measures.iter_calc(list(parsed), judged.qrels, run):
        values[parsed[one.measure]][place[one.query_id]] = one.value
    return values


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
