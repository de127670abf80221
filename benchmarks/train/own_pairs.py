"""From pairs of questions and answers to a published index: the path of ``docs/training.md``, and what it gives.

    python -m benchmarks.train.own_pairs SHARED_DATA [--work FOLDER] [--steps 200] [--seeds 3] [--quick]

KorQuAD: 5,774 questions about 961 paragraphs of Wikipedia. A quarter of the paragraphs is held out with its questions;
all paragraphs, and 1,500 pages of tldr as distractors, are searched. No Korean model is at hand, so the encoder starts
from random weights: two layers x 256 over the word pieces of KcBERT, its head the identity, so that a text is its own
word pieces before any training. The jobs are those of the page: export, encode, index, mine, train (inference-free
queries), export, encode, index. Compared are BM25 over the full text (words, by the index's own analysis), BM25 over
word pieces (Korean words carry their particles, so most of a gain over words is that of the pieces), IDF-weighted
queries before training, the trained model, and the hybrids of both with BM25.

Prints a table with paired differences to BM25, and ``RESULT {json}``; finished parts are used again.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.train.held_out import figures, judged, published, show
from benchmarks.train.korean import save_small_bert, write_data
from lsr_prod import SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.training.chain import run_chain
from lsr_prod.training.negatives.job import mine_negatives

LENGTH = 320  # tokens of a paragraph that are encoded
TRAINED_LENGTH = 192  # tokens of a paragraph in training: half the cost of a step
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
        models = {"untrained": ["start"], "trained": [f"trained-{steps}-{number}" for number in range(seeds)]}
        found = judged(work, "start", models)
    show(found, "held-out questions of KorQuAD")
    for other in ("untrained", "bm25 of word pieces"):
        one = found.compare("trained", other)
        print(f"trained against {other}: {one.difference:+.4f} ({one.low:+.4f} to {one.high:+.4f}), p = {one.p:.2g}")
    print_result({**figures(found), "seconds": round(time.perf_counter() - began)})
    against = found.systems["trained"].against
    return 0 if asked.quick or (against.difference > 0 and against.p < 0.05) else 1


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
        "scale": {"precision": "bf16"},
        "document_max_length": TRAINED_LENGTH,
        "card_document_max_length": LENGTH,
        "dropout": 0.0,
        "seed": seed,
    }
    output = work / "trained" / f"{steps}-{seed}"
    chain = {"model": str(start), "output": str(output), "work": str(work / "work"), "stages": [stage]}
    run_chain(Deployment.model_validate({"train": chain}))
    return output


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
