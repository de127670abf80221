"""Which initialization of a new vocabulary pays, with and without adaptation and APC? The paper's ablation, small.

    python -m benchmarks.vocabulary.table SHARED_DATA [--quick] [--work FOLDER] [--seeds 3] [--processes 2]

A toy BERT with the cased vocabulary is pre-trained on wikitext2 and moved onto that of bert-base-uncased, with
MiniLM's embeddings as the target's space and unigram counts as the head's bias: every initialization, ``direct`` or
``adapted`` by masked language modelling with the transformer frozen, with APC or without. Each start is fine-tuned on
pairs of tldr and SciFact; MRR@10 on held-out queries of tldr and on SciFact's test claims, means and ranges over the
seeds, and beside them active terms of a document (papers/vocabulary-transfer, table 3). What was measured lies in the
work folder: an experiment that was interrupted goes on.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers.utils.logging import disable_progress_bar

from benchmarks.vocabulary.table_models import Outcome, Place, outcomes, prepare
from benchmarks.vocabulary.table_stages import STAYS, Job, Sizes
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from quickstart.models import model_folder

STRATEGIES = ("semantic", "subtoken", "mean", "random_new", "random_all")
QUICK = Sizes(pretrain=10, adapt=2, steps=2, texts=8, length=32, pairs=8, queries=20, documents=40)
APC = ("off", "on")

Found = dict[Job, dict[str, Outcome]]


def main(argv: Sequence[str]) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with wikitext2/, tldr_en/, scifact/ and vocabularies/")
    parser.add_argument("--quick", action="store_true", help="one seed, two initializations, a few steps and documents")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps the toy and what was measured")
    parser.add_argument("--seeds", type=int, default=3, help="of drawn rows and of the order of all training")
    parser.add_argument("--steps", type=int, default=None, help=f"of a fine-tuning; {Sizes().steps} unless quick")
    parser.add_argument("--adapt-steps", type=int, default=None, help=f"of an adaptation; {Sizes().adapt}")
    parser.add_argument("--pretrain-steps", type=int, default=None, help=f"that make the toy; {Sizes().pretrain}")
    parser.add_argument("--processes", type=int, default=2, help="fine-tunings at a time, of one thread each")
    asked = parser.parse_args(argv)
    log_to_stderr()
    given = {"steps": asked.steps, "adapt": asked.adapt_steps, "pretrain": asked.pretrain_steps}
    sizes = replace(QUICK if asked.quick else Sizes(), **{name: one for name, one in given.items() if one is not None})
    jobs = all_jobs(STRATEGIES[:2] if asked.quick else STRATEGIES, seeds=1 if asked.quick else asked.seeds)
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vocabulary-table-")))
        torch.set_num_threads(asked.processes)
        place = prepare(asked.data.absolute(), work.absolute(), sizes)
        found = run(jobs, place, asked.processes)
    shown = rows(found)
    print_table(shown)
    seconds = round(time.perf_counter() - start)
    print_result({"rows": shown, "sizes": asdict(sizes), "seconds": seconds, "processes": asked.processes})
    return 0


def all_jobs(strategies: Sequence[str], *, seeds: int) -> list[Job]:
    """Every cell of the table, seed by seed, so that an interrupted one has whole seeds."""
    starts = [(strategy, adapted) for strategy in strategies for adapted in (False, True)]
    return [Job(*one, seed) for seed in range(seeds) for one in [*starts, (STAYS, False)]]


def run(jobs: Sequence[Job], place: Place, processes: int) -> Found:
    """All jobs, shared among processes of one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    model_folder("minilm")  # fetched once, not by every process
    found: Found = {}
    start = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=_alone) as pool:
        for job, made in pool.imap_unordered(partial(_done, place=place), jobs):
            found[job] = made
            reached = {apc: {name: round(value, 4) for name, value in one.rr10.items()} for apc, one in made.items()}
            seconds = time.perf_counter() - start
            sys.stderr.write(f"{len(found)}/{len(jobs)} {job.row}, seed {job.seed}: {reached}, {seconds:.0f} s\n")
    return {job: found[job] for job in jobs}


def rows(found: Mapping[Job, Mapping[str, Outcome]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Row of the table -> APC -> name of a figure -> its values, seed by seed, by collection where it has one."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for job, made in sorted(found.items(), key=lambda item: item[0].seed):
        cells = table.setdefault(job.row, {apc: {} for apc in made})
        for apc, outcome in made.items():
            for figure, value in asdict(outcome).items():
                if isinstance(value, dict):
                    by_collection = cells[apc].setdefault(figure, {name: [] for name in value})
                    for name, one in value.items():
                        by_collection[name].append(one)
                else:
                    cells[apc].setdefault(figure, []).append(value)
    return table


def print_table(shown: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """A line a row."""
    collections = list(next(iter(shown.values()))["off"]["rr10"])
    table = Table("MRR@10 (lowest-highest)", title="vocabulary transfer of a toy BERT", title_justify="left")
    for name in collections:
        for apc in APC:
            table.add_column(f"{name}\nAPC {apc}", justify="right")
    for apc in APC:
        table.add_column(f"terms, {collections[0]}\nAPC {apc}", justify="right")
    for row, cells in shown.items():
        reached = [spread(cells[apc]["rr10"][name]) for name in collections for apc in APC]
        terms = [f"{np.mean(cells[apc]['l0_document'][collections[0]]):,.0f}" for apc in APC]
        table.add_row(row, *reached, *terms)
    Console(width=max(140, Console().width)).print(table)


def spread(values: Sequence[float]) -> str:
    """Mean and range."""
    return f"{np.mean(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def _alone() -> None:
    """A process shares the machine with others like it."""
    torch.set_num_threads(1)
    disable_progress_bar()


def _done(job: Job, place: Place) -> tuple[Job, dict[str, Outcome]]:
    return job, outcomes(job, place)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
