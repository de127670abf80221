"""Every recipe is short and valid."""

import re
from pathlib import Path

import pytest

from lsr_prod.config import FinetuneSettings, load_deployment

RECIPES = sorted((Path(__file__).parents[2] / "jobs" / "recipes").glob("*.yaml"))


NAMED = {
    "casing", "casing-regularizer", "casing-uncased-vocabulary", "csplade", "csplade-echo", "emlm", "esplade",
    "esplade-pruned", "head-rescaling", "inference-free", "splade", "vocabulary-transfer", "vocabulary-transfer-domain",
    "vocabulary-transfer-head",
}  # fmt: skip


def test_recipes_are_the_named_ones() -> None:
    assert {path.stem for path in RECIPES} == NAMED


def test_methods_page_names_exactly_the_recipes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`recipes/([a-z-]+)\.yaml`", page)) == NAMED


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_valid_and_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40
    deployment = load_deployment(["--config", str(path)], job="lsr-prod train", description="", needs=("train",))
    assert deployment.train is not None
    assert deployment.train.stages


def finetuning(recipe: str) -> FinetuneSettings:
    """Return the last stage of a recipe."""
    path = next(path for path in RECIPES if path.stem == recipe)
    train = load_deployment(["--config", str(path)], job="lsr-prod train", description="", needs=("train",)).train
    assert train is not None
    stage = train.stages[-1]
    assert isinstance(stage, FinetuneSettings)
    return stage


@pytest.mark.parametrize("recipe", ["casing", "casing-regularizer", "casing-uncased-vocabulary"])
def test_casing_recipes_have_values_of_the_authors_configurations(recipe: str) -> None:
    """See papers/casing, 4; what it leaves to SPLADE-v2 is in the configurations of the authors' repository."""
    stage = finetuning(recipe)
    flops, *others = stage.objective.sparsity.regularizers
    assert [loss.loss for loss in stage.objective.losses] == ["margin_mse"]
    assert (stage.batch.queries, stage.batch.negatives, stage.steps) == (128, 1, 150_000)
    assert (flops.regularizer, flops.query, flops.document) == ("flops", 0.5, 0.4)
    assert (flops.ramp, flops.ramp_steps) == ("quadratic", 50_000)
    assert (stage.optimizer.learning_rate, stage.optimizer.warmup_steps) == (2e-5, 6000)
    if recipe == "casing-regularizer":
        (cased,) = others
        assert (cased.regularizer, cased.query, cased.document) == ("cased", 0.2, 0.2)
        assert (cased.ramp, cased.ramp_steps) == ("quadratic", 10_000)
    else:
        assert not others


LENGTHS = {  # tokens in training: query, document; in the card of the trained model: query, document
    "casing": (256, 256, None, None),  # the authors' configurations: max_length of training and of the index
    "casing-regularizer": (256, 256, None, None),
    "casing-uncased-vocabulary": (256, 256, None, None),
    "csplade": (None, None, None, None),  # not stated in the paper
    "csplade-echo": (None, None, None, None),
    "esplade": (64, 64, None, None),  # B.1: "the maximum length accepted by the model"
    "esplade-pruned": (64, 64, None, None),
    "head-rescaling": (None, None, None, None),  # lost in the text of the paper
    "inference-free": (None, 256, None, 512),  # configs of the authors of arXiv 2504.14839
    "splade": (256, 256, None, None),  # SPLADE-v2's configurations
    "vocabulary-transfer": (256, 256, None, 512),  # 5.3: training protocol, evaluation configuration
    "vocabulary-transfer-head": (256, 256, None, 512),
    "vocabulary-transfer-domain": (256, 256, None, 512),
}


@pytest.mark.parametrize("recipe", sorted(NAMED - {"emlm"}))
def test_lengths_are_those_of_the_paper(recipe: str) -> None:
    stage = finetuning(recipe)
    lengths = (stage.query_max_length, stage.document_max_length)
    assert (*lengths, stage.card_query_max_length, stage.card_document_max_length) == LENGTHS[recipe]


def test_esplade_recipe_has_settings_of_the_paper() -> None:
    """See papers/esplade-pretraining, appendix C.3."""
    stage = finetuning("esplade")
    (regularizer,) = stage.objective.sparsity.regularizers
    sparsity, optimizer = stage.objective.sparsity, stage.optimizer
    assert [loss.loss for loss in stage.objective.losses] == ["n_pair"]
    assert (regularizer.regularizer, regularizer.joint) == ("joint_flops", 5)
    assert (sparsity.keep_query, sparsity.keep_document, sparsity.keep) == (1000, 2000, "both")  # A.3
    assert (stage.batch.queries, stage.batch.negatives, stage.batch.accumulate, stage.steps) == (3072, 0, 1, 400_000)
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.warmup_steps) == (1e-4, "linear", 10_000)
    assert optimizer.weight_decay == 0.01
    assert stage.validation is not None
    assert stage.validation.keep_best == "R@10"
