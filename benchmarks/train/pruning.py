"""Does it pay to train with the pruning of serving? Four models from one start, at four levels and three thresholds.

    python -m benchmarks.train.pruning SHARED_DATA [--quick] [--work FOLDER] [--seeds 3]

FLOPS, jFLOPS, jFLOPS + pruning-aware, and the latter + threshold-aware training of splade-tiny, on pairs of tldr and
SciFact, three seeds each. Judged on held-out queries of tldr over all its pages and on SciFact's test claims, by real
indexes: MRR@10 and R@10 with L0 and FLOPS beside them (table 2 and figure 1 of papers/esplade-pretraining). Prints the
tables, paired tests at (5, 10) and ``RESULT {json}``, and leaves ``pruning.png`` in the work folder, where models and
measurements lie too: an experiment that was interrupted goes on. ``--development`` judges on other held-out queries,
for the choice of settings.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.train.pruning_data import few_documents, scifact_pairs, scifact_test, split_tldr
from benchmarks.train.pruning_models import Recipe, Workshop
from benchmarks.train.pruning_report import PRUNED, compared, draw, rows, sentence, summary, table
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.validation import Collection
from lsr_prod.jobs.terminal.run import log_to_stderr, print_result
from quickstart.models import model_folder

TESTS = {  # ours, theirs, threshold
    "pruning": ("jFLOPS + pruning", "jFLOPS", 0.0),
    "pruning_0.4": ("jFLOPS + pruning", "jFLOPS", 0.4),
    "pruning_0.6": ("jFLOPS + pruning", "jFLOPS", 0.6),
    "pruning_to_flops": ("jFLOPS + pruning", "FLOPS", 0.0),
    "threshold": ("jFLOPS + pruning + threshold", "jFLOPS + pruning", 0.0),
    "threshold_0.4": ("jFLOPS + pruning + threshold", "jFLOPS + pruning", 0.4),
    "threshold_0.6": ("jFLOPS + pruning + threshold", "jFLOPS + pruning", 0.6),
}


def main(argv: Sequence[str]) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/ and scifact/")
    parser.add_argument("--quick", action="store_true", help="a few steps, documents and queries: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models and measurements")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each model")
    parser.add_argument("--development", action="store_true", help="judge on the development queries of tldr only")
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="train-pruning-")))
        values = experiment(
            asked.data, work.absolute(), seeds=asked.seeds, quick=asked.quick, final=not asked.development
        )
    print_result({**values, "seconds": round(time.perf_counter() - start)})
    return 0


def experiment(data: Path, work: Path, *, seeds: int, quick: bool, final: bool) -> dict[str, object]:
    """All models on all collections; returns the figures of ``RESULT``."""
    split = split_tldr(data / "tldr_en", test_pages=600, development_pages=300)
    collections = {"tldr": split.test, "scifact": scifact_test(data / "scifact")}
    if not final:
        collections = {"tldr-development": split.development}
    recipe = Recipe()
    if quick:
        recipe = Recipe(steps=4, queries=8)
        collections = {name: _few(collection) for name, collection in collections.items()}
    workshop = Workshop(work, _start_model(work / "start"), split.train + scifact_pairs(data / "scifact"))
    models: dict[str, list[Path]] = {name: [] for name in recipe.objectives()}
    for seed in range(seeds):
        for name, objective in recipe.objectives().items():
            models[name].append(workshop.trained(recipe.stage(objective, workshop.data, seed)))
    values: dict[str, object] = {"recipe": str(recipe)}
    tables = {}
    for name, collection in collections.items():
        measured = {"start": [workshop.measured(workshop.start, collection)]} | {
            model: [workshop.measured(folder, collection) for folder in folders] for model, folders in models.items()
        }
        tables[name] = rows(measured)
        print(table(f"{name}: {len(collection.queries)} queries, {len(collection.documents)} documents", tables[name]))
        tests = {}
        for test, (ours, theirs, threshold) in TESTS.items():
            tests[test] = compared(measured, collection, ours, theirs, level=PRUNED, threshold=threshold)
            print(sentence(ours, theirs, f"{PRUNED}, threshold {threshold}", tests[test]))
        values |= summary(name, tables[name], tests)
    draw(tables, work / "pruning.png")
    return values


def _start_model(folder: Path) -> Path:
    SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64).save(folder)
    return folder


def _few(collection: Collection) -> Collection:
    queries = dict(list(collection.queries.items())[:40])
    qrels = [qrel for qrel in collection.qrels if qrel.query_id in queries]
    return few_documents(Collection(collection.documents, queries, qrels), 200)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
