"""The sections of experiments with material of their own, from reports that are written by hand."""

from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

from benchmarks.results import causal, inference_free, korean, pruning
from benchmarks.results.material import Material
from benchmarks.results.runs import Outcome, Workshop
from benchmarks.train.held_out import Judged, System
from benchmarks.train.paired import compare
from benchmarks.train.pruning import START, Experiment
from benchmarks.train.pruning_models import HARD, LEVELS, NONE, STRAIGHT_THROUGH, Recipe
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import LevelReport

QUERIES = 40
NAMES = [f"q{number}" for number in range(QUERIES)]


def reports(value: float) -> list[LevelReport]:
    values = np.full(QUERIES, value)
    return [
        LevelReport(
            qk=qk, dk=dk, threshold=0.0, l0_query=5.0, l0_document=20.0, flops=0.5, matched=9.0,
            measures={"RR@10": value, "R@10": value}, by_query={"RR@10": values, "R@10": values},
        )
        for qk, dk in LEVELS
    ]  # fmt: skip


@pytest.fixture
def material(tmp_path: Path) -> Material:
    return Material(tmp_path / "data", tmp_path)


def test_pruning_compares_every_pair_of_models_and_prints_the_cost(material: Material, monkeypatch: Any):
    collection = Collection(
        {"d": "text"}, dict.fromkeys(NAMES, "query"), [ir_measures.Qrel(name, f"d{name}", 1) for name in NAMES]
    )
    measured = {START: [reports(0.1)], NONE: [reports(0.5)], HARD: [reports(0.6)], STRAIGHT_THROUGH: [reports(0.4)]}
    found = Experiment(Recipe(), {}, (0.0,), {"tldr": collection}, {"tldr": measured})
    words = {one.claim.text: one.word for one in pruning.verdicts(found)}
    assert words[f"{HARD} is ahead of {NONE} at (3, 8), RR@10"] == "shown"
    assert words[f"{STRAIGHT_THROUGH} is ahead of {HARD} at (5, 10), R@10"] == "not shown"
    assert words[f"{STRAIGHT_THROUGH} costs nothing without pruning, RR@10"] == "not shown"
    assert len(words) == 16
    monkeypatch.setattr(pruning, "experiment", lambda *_, **__: found)
    page = pruning.section(material, 1)
    assert "| (3, 8) | jFLOPS + hard | 0.6000 | 0.0000 | 0.6000 | 5.0 | 20.0 | 0.500 |" in page
    assert "40 held-out queries over 1 pages" in page
    assert "16 comparisons are made, 8 per measure" in page
    assert f'"{HARD} is ahead of {NONE} at (3, 8), RR@10" (+0.100)' in page


def system(name: str, *means: float) -> System:
    values = [np.full(QUERIES, mean) for mean in means]
    measures = dict.fromkeys(["RR@10", "nDCG@10", "R@100"], means[0])
    return System(name, measures, means, values, compare(values, [np.full(QUERIES, 0.5)] * len(means), NAMES), 20.0)


def test_inference_free_has_every_system_of_every_collection_and_a_verdict_for_each(
    material: Material, monkeypatch: Any
):
    kinds = {"idf": 0.4, "learned": 0.45, "learned, l0 activation": 0.4, "learned, distilled": 0.5}
    rows = [system("bm25", 0.5), system("idf, untrained", 0.3), system("learned, hybrid", 0.6)]
    rows += [system(name, mean, mean) for name, mean in {**kinds, "learned, rate found": 0.45}.items()]
    found = Judged({one.name: one for one in rows}, NAMES, 7)
    asked = []
    monkeypatch.setattr(inference_free, "experiment", lambda name, *_, **__: asked.append(name) or found)
    page = inference_free.section(material, 2)
    assert asked == ["tldr", "scifact", "debian"]
    assert "| learned | 0.450 | -0.050 (-0.050 to -0.050) | 20 | 0.450 | " in page
    assert [one.word for one in inference_free.verdicts("tldr", found)] == [
        "shown", "shown", "not shown", "shown", "not shown", "not shown", "shown",
    ]  # fmt: skip
    assert page.count("| debian: ") == 7 + 1


def test_korean_has_a_row_for_every_system_and_compares_with_no_training(material: Material, monkeypatch: Any):
    rows = [system("bm25", 0.5), system("untrained", 0.3), system("calibrated", 0.4), system("trained", 0.45, 0.47)]
    hybrids = [
        system("untrained, hybrid", 0.5),
        system("calibrated, hybrid", 0.55),
        system("trained, hybrid", 0.6, 0.6),
    ]
    found = Judged({one.name: one for one in [*rows, *hybrids]}, NAMES, 7)
    monkeypatch.setattr(korean, "experiment", lambda *_: (1_234, found))
    page = korean.section(material, 2)
    assert "U of 1,234 words" in page
    assert "| trained | 0.4500 | 0.4500 | 0.4500 | 0.450 0.470 |" in page
    assert [one.word for one in korean.verdicts(found)] == ["shown", "shown", "shown", "not shown", "shown"]


def test_losses_of_every_row_of_the_decoder_are_drawn(material: Material, monkeypatch: Any):
    monkeypatch.setattr(Material, "file", lambda self, kind: self.work / kind)
    family = causal.family(material)
    outcomes = {
        label: Outcome({}, {}, None, 0.0, [3.0] * 20 if "untrained" not in label else ()) for label in family.rows
    }
    labels = {id(chain): label for label, chain in family.rows.items()}
    monkeypatch.setattr(Workshop, "outcome", lambda _, chain, _seed: outcomes[labels[id(chain)]])
    file = material.work / "diagrams" / "causal.svg"
    assert "(diagrams/causal.svg)" in causal.curves(family, Workshop(material), file)
    drawn = file.read_text()
    assert {label for label in family.rows if f">{label}<" in drawn} == set(family.rows) - {"untrained"}
