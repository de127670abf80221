"""Pruning-aware training (ours): straight-through against hard pruning against none, on all held-out queries."""

from collections.abc import Sequence

import numpy as np

from benchmarks.results.claims import SIGNIFICANT, Claim, Verdict
from benchmarks.results.material import Material
from benchmarks.results.page import claims, table
from benchmarks.train.pruning import Experiment, experiment
from benchmarks.train.pruning_models import HARD, LEVELS, MEASURES, NONE, STRAIGHT_THROUGH
from benchmarks.train.pruning_report import compared, rows
from lsr_prod.evaluation.comparisons import holm

PRUNED = [level for level in LEVELS if level != (0, 0)]


def section(material: Material, seeds: int) -> str:
    """Train and measure what is missing; the section in Markdown."""
    found = experiment(material.data, material.work / "pruning", seeds=seeds, quick=material.quick)
    collection = found.collections["tldr"]
    tested = verdicts(found)
    text = TEXT.format(
        steps=found.recipe.steps, batch=found.recipe.queries, queries=len(collection.queries),
        documents=len(collection.documents), corrected=corrected(tested),
    )  # fmt: skip
    head = ["(qk, dk)", "model", "RR@10", "sd of seeds", "R@10", "L0 query", "L0 document", "FLOPS"]
    measured = (
        [
            "all" if row.qk == 0 else f"({row.qk}, {row.dk})", row.model, f"{row.rr10:.4f}", f"{row.rr10_spread:.4f}",
            f"{row.r10:.4f}", f"{row.l0_query:.1f}", f"{row.l0_document:.1f}", f"{row.flops:.3f}",
        ]
        for row in rows(found.measured["tldr"])
    )  # fmt: skip
    return "\n\n".join([text, table(head, measured), claims(tested)])


def corrected(tested: Sequence[Verdict]) -> str:
    """The number of comparisons, and those that are significant after a correction for the others of their measure."""
    of_measure = [[one for one in tested if one.claim.text.endswith(f", {measure}")] for measure in MEASURES]
    adjusted = [holm(np.array([one.found.p for one in part])) for part in of_measure]
    kept = [
        f'"{one.claim.text}" ({one.found.difference:+.3f})'
        for part, p_values in zip(of_measure, adjusted, strict=True)
        for one, p in zip(part, p_values, strict=True)
        if p < SIGNIFICANT
    ]
    return (
        f"{len(tested)} comparisons are made, {len(of_measure[0])} per measure. After Holm's correction for those of a "
        f"measure, p < {SIGNIFICANT}\nholds for {'; '.join(kept) + ' only' if kept else 'no difference'}."
    )


def verdicts(found: Experiment) -> list[Verdict]:
    """Each pair of models at each pruned level by both measures, then what pruning-aware training costs unpruned."""
    pairs = ((STRAIGHT_THROUGH, NONE), (HARD, NONE), (STRAIGHT_THROUGH, HARD))
    asked = [
        (Claim(f"{better} is ahead of {worse} at {level}, {measure}", better, worse, level=level, why=WHY), measure)
        for better, worse in pairs
        for level in PRUNED
        for measure in MEASURES
    ]
    asked += [
        (Claim(f"{better} costs nothing without pruning, {measure}", better, NONE, why="this is the cost"), measure)
        for better in (STRAIGHT_THROUGH, HARD)
        for measure in MEASURES
    ]
    return [
        Verdict(
            one,
            compared(
                found.measured["tldr"], found.collections["tldr"], one.better, one.worse, level=one.level, threshold=0.0
            )[measure],
        )
        for one, measure in asked
    ]


WHY = """at these levels the first ten hits change little (the spread of the seeds is as large as the differences);
other weights and temperatures on the development queries were no better""".replace("\n", " ")
TEXT = """## Pruning-aware training

Ours: esplade-pretraining prunes trained models, in search only. `splade-tiny`, {steps} steps of {batch} pairs with
joint FLOPS, and in the pruned models with the loss of the texts pruned to (3, 8) and (5, 10) as well;
{queries:,} held-out queries over {documents:,} pages of tldr. Models and tests: `benchmarks/train/pruning.py`.
{corrected}"""
