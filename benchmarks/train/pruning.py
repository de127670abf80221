"""Does training with the pruning of search improve the pruned quality? Models from one start, at three levels.

    python -m benchmarks.train.pruning SHARED_DATA [--quick] [--work FOLDER] [--seeds 3] [--all] [--development]

Trains splade-tiny on pairs of tldr and SciFact with joint FLOPS: without pruned losses, with hard and with
straight-through gradients, three seeds each, and measures held-out queries of tldr with real indexes: MRR@10 and R@10
with L0 and FLOPS, unpruned (the cost of pruning-aware training) and pruned to (3, 8) and (5, 10). ``--all`` adds FLOPS
and threshold-aware training, the thresholds 0.4 and 0.6, and SciFact's test claims. Prints the tables, paired tests and
``RESULT {json}``, and leaves ``pruning.png`` in the work folder. Models and measurements are kept there by digest, so
an interrupted experiment resumes. ``--development`` measures other held-out queries, for the choice of settings.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.train.paired import Comparison
from benchmarks.train.pruning_data import few_documents, scifact_pairs, scifact_test, split_tldr
from benchmarks.train.pruning_models import (
    FLOPS,
    HARD,
    LEVELS,
    NONE,
    STRAIGHT_THROUGH,
    THRESHOLD,
    THRESHOLDS,
    Recipe,
    Workshop,
)
from benchmarks.train.pruning_report import Measured, compared, draw, rows, sentence, summary, table
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.validation import Collection
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from quickstart.models import model_folder

TESTS = {"straight_through_to_none": (STRAIGHT_THROUGH, NONE), "straight_through_to_hard": (STRAIGHT_THROUGH, HARD),
         "hard_to_none": (HARD, NONE)}  # fmt: skip
MORE_TESTS = {"hard_to_flops": (HARD, FLOPS), "threshold": (THRESHOLD, HARD)}
START = "start"
PAGES = 1_500  # pages of tldr: those of the queries first, then others


def main(argv: Sequence[str]) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/ and scifact/")
    parser.add_argument("--quick", action="store_true", help="a few steps, documents and queries: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models and measurements")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each model")
    parser.add_argument("--all", action="store_true", help="also FLOPS, threshold-aware training, and SciFact")
    parser.add_argument("--development", action="store_true", help="measure the development queries of tldr only")
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="train-pruning-")))
        found = experiment(
            asked.data,
            work.absolute(),
            seeds=asked.seeds,
            quick=asked.quick,
            final=not asked.development,
            everything=asked.all,
        )
        values = _print(found, work / "pruning.png")
    print_result({**values, "seconds": round(time.perf_counter() - start)})
    return 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """The trained models of an experiment and their measurements.

    Attributes:
        recipe: of all models.
        tests: name to the models that are compared.
        thresholds: that were searched with.
        collections: name to held-out queries.
        measured: name of a collection to the reports of all models.
    """

    recipe: Recipe
    tests: Mapping[str, tuple[str, str]]
    thresholds: Sequence[float]
    collections: Mapping[str, Collection]
    measured: Mapping[str, Measured]


def experiment(
    data: Path, work: Path, *, seeds: int, quick: bool = False, final: bool = True, everything: bool = False
) -> Experiment:
    """All models on all collections."""
    split = split_tldr(data / "tldr_en")
    collections = {"tldr": few_documents(split.test if final else split.development, PAGES)}
    if everything:
        collections["scifact"] = scifact_test(data / "scifact")
    recipe = Recipe()
    if quick:
        recipe = Recipe(steps=4, queries=8)
        collections = {name: _few(collection) for name, collection in collections.items()}
    workshop = Workshop(work, _start_model(work / "start"), split.train + scifact_pairs(data / "scifact"))
    objectives = recipe.objectives()
    tests = TESTS | (MORE_TESTS if everything else {})
    thresholds = THRESHOLDS if everything else THRESHOLDS[:1]
    names = [name for name in objectives if any(name in pair for pair in tests.values())]
    models: dict[str, list[Path]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names:
            models[name].append(workshop.trained(recipe.stage(objectives[name], workshop.data, seed)))
            for collection in collections.values():  # measured at once, so that an interrupted run has figures
                workshop.measured(models[name][-1], collection, thresholds)
    measured = {
        name: {START: [workshop.measured(workshop.start, collection, thresholds)]}
        | {
            model: [workshop.measured(folder, collection, thresholds) for folder in folders]
            for model, folders in models.items()
        }
        for name, collection in collections.items()
    }
    return Experiment(recipe, tests, thresholds, collections, measured)


def _print(found: Experiment, picture: Path) -> dict[str, object]:
    """Print the tables and tests, draw; returns the figures of ``RESULT``."""
    values: dict[str, object] = {"recipe": str(found.recipe)}
    tables = {}
    for name, collection in found.collections.items():
        tables[name] = rows(found.measured[name])
        print(table(f"{name}: {len(collection.queries)} queries, {len(collection.documents)} documents", tables[name]))
        tests = _tests(found.measured[name], collection, found.tests, found.thresholds)
        values |= summary(name, tables[name], tests)
    draw(tables, picture)
    return values


def _tests(
    measured: Measured, collection: Collection, tests: Mapping[str, tuple[str, str]], thresholds: Sequence[float]
) -> dict[str, dict[str, Comparison]]:
    """Print and return the paired tests at every level and threshold; level (0, 0) is the cost without pruning."""
    found = {}
    for name, (ours, theirs) in tests.items():
        for level in LEVELS:
            for threshold in thresholds:
                one = compared(measured, collection, ours, theirs, level=level, threshold=threshold)
                print(sentence(ours, theirs, f"{level}, threshold {threshold}", one))
                found[f"{name}/{level[0]},{level[1]}/{threshold:g}"] = one
    return found


def _start_model(folder: Path) -> Path:
    SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64).save(folder)
    return folder


def _few(collection: Collection) -> Collection:
    queries = dict(list(collection.queries.items())[:40])
    qrels = [qrel for qrel in collection.qrels if qrel.query_id in queries]
    return few_documents(Collection(collection.documents, queries, qrels), 200)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
