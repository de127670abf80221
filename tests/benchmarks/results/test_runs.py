"""A chain runs once: stages, fine-tuning, measurement, and the same outcome from the cache."""

from functools import cached_property
from pathlib import Path

import ir_measures
import pytest
import torch

from benchmarks.results.material import Material
from benchmarks.results.runs import Chain, Workshop
from benchmarks.results.stages import adapt_mlm, calibrate, finetune
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.validation import Collection
from quickstart.models import model_folder

TEXTS = ["list files", "remove a folder", "copy over a network", "show a calendar", "edit text", "compile a program"]


class SmallMaterial(Material):
    """Six pages and a real small model in the place of a stand-in."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(f"How to {text}", f"tool {number}: {text}") for number, text in enumerate(TEXTS * 6)]

    @cached_property
    def texts(self) -> list[str]:
        return TEXTS * 10

    @cached_property
    def collections(self) -> dict[str, Collection]:
        documents = {f"d{number}": text for number, text in enumerate(TEXTS)}
        qrels = [ir_measures.Qrel("q0", "d0", 1), ir_measures.Qrel("q1", "d4", 1)]
        return {"tldr": Collection(documents, {"q0": "Listing of files", "q1": "Text editor"}, qrels)}

    def start(self, name: str) -> Path:
        assert name == "uncased"
        folder = self.work / "start"
        if not folder.exists():
            SparseEncoder.load(model_folder("splade-tiny")).save(folder)
        return folder


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return SmallMaterial(tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("results"))


def test_chain_without_stages_measures_the_start(material: Material):
    found = Workshop(material).outcome(Chain("uncased", ()), 0)
    assert found.loss is None
    assert found.values().tolist() == [1.0, 1.0]
    assert found.cost["tldr 0 0 0"]["l0_document"] > 1


@pytest.mark.long
def test_chain_is_run_once_and_seeds_change_it(material: Material):
    stages = (adapt_mlm(steps=1, trained="all"), finetune(steps=2))
    chain = Chain("uncased", stages, ((0, 0), (5, 10)), (0.0, 0.4))
    first = Workshop(material).outcome(chain, 0)
    models = sorted(path.name for path in (material.work / "models").iterdir())

    assert first.loss is not None
    assert len(first.by_query) == 4
    assert Workshop(material).outcome(chain, 0) == first
    assert sorted(path.name for path in (material.work / "models").iterdir()) == models
    assert Workshop(material).model(chain, 1) != Workshop(material).model(chain, 0)


@pytest.mark.long
def test_low_rank_updates_are_merged_and_every_loss_is_kept(material: Material):
    stage = {**finetune(steps=2, learning_rate=0.05), "scale": {"precision": "fp32", "lora": {"rank": 4, "alpha": 8}}}
    chain = Chain("uncased", (stage,))
    assert len(Workshop(material).outcome(chain, 0).losses) == 2
    folders = (material.start("uncased"), Workshop(material).model(chain, 0))
    before, after = (SparseEncoder.load(folder).model.state_dict() for folder in folders)
    assert before.keys() == after.keys()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert "bert.encoder.layer.0.attention.self.query.weight" in changed
    assert "bert.embeddings.word_embeddings.weight" not in changed


def test_transformation_reads_the_texts_of_the_material(material: Material):
    found = Workshop(material).outcome(Chain("uncased", (calibrate(0.001, material),)), 0)
    assert found.cost["tldr 0 0 0"]["l0_document"] < 200


def test_text_of_models_is_made_once_and_again_for_other_models(material: Material):
    workshop, made = Workshop(material), []

    def make() -> str:
        made.append(1)
        return f"text {len(made)}"

    one, other = material.work / "a", material.work / "b"
    found = [workshop.kept("tables", models, make) for models in ([one], [one], [one, other])]
    assert found == ["text 1", "text 1", "text 2"]
