"""A head that is five times too large, trained as it is and rescaled: the failure of head-rescaling, small.

    python -m benchmarks.vocabulary.head_rescaling SHARED_DATA [--quick] [--work FOLDER] [--seeds 3]

splade-tiny, once as it is and once with its output matrix times 5, is trained on pairs of tldr and SciFact with alpha 1
and with ``auto``; MRR@10 on held-out queries of tldr and on SciFact's test claims, three seeds. Required: ``auto``
picks 1 for the model as it is, and brings the large one to 95 % of what the model as it is reaches by the same
training. Both loss curves are printed. What was trained lies in the work folder: an experiment that was interrupted
goes on.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.train.pruning_data import (
    few_documents,
    scifact_pairs,
    scifact_test,
    split_tldr,
    training_data,
    training_set,
)
from benchmarks.train.pruning_models import DOCUMENT_LENGTH, QUERY_LENGTH, Recipe, measure
from lsr_prod import SparseEncoder
from lsr_prod.config.model import RescaleHeadSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.evaluation.validation import Collection
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.model import model_digest
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.transformations import rescale_head as rescale
from lsr_prod.training.vocabulary.head import head_norms, scale_head
from quickstart.models import model_folder

FACTOR = 5.0
SHARE = 0.95
MEASURE = "RR@10"


@dataclass(frozen=True, slots=True)
class Trained:
    """One training: its loss every tenth step, and what it reached."""

    losses: list[float]
    measures: dict[str, float]


def main(argv: Sequence[str]) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/ and scifact/")
    parser.add_argument("--quick", action="store_true", help="a few steps, documents and queries: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps what was trained")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="head-rescaling-")))
        values = experiment(asked.data, work.absolute(), seeds=asked.seeds, steps=asked.steps, quick=asked.quick)
    print_result({**values, "seconds": round(time.perf_counter() - start)})
    return 0 if asked.quick or values["required"] else 1


def experiment(data: Path, work: Path, *, seeds: int, steps: int, quick: bool) -> dict[str, Any]:
    """All models and seeds; returns the figures of ``RESULT``."""
    split = split_tldr(data / "tldr_en", test_pages=600, development_pages=300)
    collections = {"tldr": split.test, "scifact": scifact_test(data / "scifact")}
    recipe = Recipe(steps=4, queries=8) if quick else Recipe(steps=steps)
    if quick:
        seeds, collections = 1, {"tldr": few_documents(_few(split.test), 200)}
    pairs = split.train + scifact_pairs(data / "scifact")
    work.mkdir(parents=True, exist_ok=True)
    pairs_file = work / "pairs.jsonl"
    training = training_data(pairs, pairs_file)
    starts, alphas = _starts(work, training)
    _, rows = training_set(
        training, starts["unscaled"], work, query_length=QUERY_LENGTH, document_length=DOCUMENT_LENGTH
    )
    stage = {seed: recipe.stage(recipe.objectives()["FLOPS"], training, seed) for seed in range(seeds)}
    found = {
        name: [_trained(work, folder, rows, stage[seed], collections) for seed in range(seeds)]
        for name, folder in starts.items()
    }
    _print(found, list(collections))
    means = {
        name: {one: float(np.mean([run.measures[one] for run in runs])) for one in collections}
        for name, runs in found.items()
    }
    shares = {one: means["times 5, auto"][one] / means["unscaled"][one] for one in collections}
    required = alphas["unscaled"] == 1 and min(shares.values()) >= SHARE
    print(f"auto picks {alphas['unscaled']:g} for the model as it is, {alphas['times 5']:g} for the large one")
    print(", ".join(f"{one}: {share:.1%} of the unscaled model" for one, share in shares.items()))
    return {
        "alphas": alphas,
        "measures": means,
        "seeds": {name: [run.measures for run in runs] for name, runs in found.items()},
        "losses": {name: runs[0].losses for name, runs in found.items()},
        "shares": shares,
        "required": required,
    }


def _starts(work: Path, training: Any) -> tuple[dict[str, Path], dict[str, float]]:
    """What trainings start from, and what ``auto`` picks for the model as it is and for the large one."""
    auto = RescaleHeadSettings.model_validate({"stage": "rescale_head", "alpha": "auto", "data": training.model_dump()})
    plain = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    large = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    scale_head(large, 1 / FACTOR)
    alphas: dict[str, float] = {}
    made = {"unscaled": plain, "times 5": large}
    for name in ("unscaled", "times 5"):
        scaled, summary = rescale(made[name], auto, {}, work)
        alphas[name] = summary["alpha"]
        print(f"{name}: {head_norms(made[name])}")
        for probe in summary["probes"]:
            print("  " + ", ".join(f"{key} {value:.2f}" for key, value in probe.items()))
        if name == "times 5":
            made["times 5, auto"] = scaled
    folders = {name: work / "starts" / name.replace(", ", "-").replace(" ", "-") for name in made}
    for name, encoder in made.items():
        encoder.save(folders[name])
    return folders, alphas


def _trained(
    work: Path, start: Path, rows: TrainingSet, stage: FinetuneSettings, collections: dict[str, Collection]
) -> Trained:
    """Train and measure, unless that was done."""
    asked = {name: [len(one.documents), len(one.queries)] for name, one in collections.items()}
    made_from = [model_digest(start), stage.model_dump(mode="json", exclude={"data"}), asked]
    file = work / "results" / f"{digest_json(made_from)}.json"
    if not file.exists():
        trainer = Trainer(SparseEncoder.load(start), rows, stage, Group(0, 1, torch.device("cpu")))
        losses = []
        while trainer.step < trainer.steps:
            losses.append(float(trainer.train_step().losses["total"]))
        encoder = trainer.encoder.eval()
        measures = {name: _measure(encoder, one) for name, one in collections.items()}
        file.parent.mkdir(exist_ok=True)
        every = max(1, len(losses) // 20)
        shown = [float(np.mean(losses[i : i + every])) for i in range(0, len(losses), every)]
        file.write_text(json.dumps({"losses": shown, "measures": measures}))
    return Trained(**json.loads(file.read_text()))


def _measure(encoder: SparseEncoder, collection: Collection) -> float:
    (report,) = measure(encoder, collection, levels=[(0, 0)], thresholds=[0.0], measures=[MEASURE])
    return float(report.measures[MEASURE])


def _print(found: dict[str, list[Trained]], collections: list[str]) -> None:
    for one in collections:
        print(f"MRR@10, {one}: mean (seeds)")
        for name, runs in found.items():
            values = [run.measures[one] for run in runs]
            print(f"  {name:16s} {np.mean(values):.4f}  ({', '.join(f'{value:.4f}' for value in values)})")
    print("loss, seed 0, means of a twentieth of the steps")
    for name, runs in found.items():
        print(f"  {name:16s} " + " ".join(f"{value:.2f}" for value in runs[0].losses))


def _few(collection: Collection) -> Collection:
    queries = dict(list(collection.queries.items())[:40])
    return Collection(collection.documents, queries, [qrel for qrel in collection.qrels if qrel.query_id in queries])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
