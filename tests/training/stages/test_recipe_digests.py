"""Digests of the stages of all recipes: a change of code or of a setting's name must not repeat finished stages."""

from pathlib import Path

import pytest
import yaml

from lsr_prod.config.train import TrainSettings
from lsr_prod.training.stages.registry import stage_digest

RECIPES = Path(__file__).parents[3] / "jobs" / "recipes"
DIGESTS = {
    "casing-regularizer.yaml": ["9eac5f0d98b12e65"],
    "casing-uncased-vocabulary.yaml": ["713a5b1f01272267", "49880b07de6940c5"],
    "casing.yaml": ["d8e3d3ab68e3f176", "49880b07de6940c5"],
    "csplade-echo.yaml": ["62f5e7c8600564b1", "a801bbaf724f2a38", "8577798a26249b08", "ac6a195e3a03acf9"],
    "csplade.yaml": ["62f5e7c8600564b1", "af48d93b754dacee", "8577798a26249b08", "ac6a195e3a03acf9"],
    "emlm.yaml": ["d6030c630a397550", "6505023e2929a835"],
    "esplade-pruned.yaml": ["eafadab8f1eccf87"],
    "esplade.yaml": ["695e040844e44324"],
    "head-rescaling.yaml": ["d8ca341f1fb573f4", "c2617d2dcdeba1c2"],
    "inference-free.yaml": ["5e561f5c4c5c3f86", "a109aa21a0f49641"],
    "splade.yaml": ["b2fcaab53795bd48"],
    "vocabulary-transfer-domain.yaml": ["855dbb409bb44913", "9c55bcd5d7785f68", "d39737fd1260882a", "2b97bb5744f279e4"],
    "vocabulary-transfer-head.yaml": ["06beacf9e51b1e91", "ecf9793f98b0be77", "8a52feb9d9e84374"],
    "vocabulary-transfer.yaml": ["b22d78abf42525b0", "a16d70830c9b0700", "d39737fd1260882a", "8a52feb9d9e84374"],
}


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.glob("*.yaml")))
def test_stage_digests_of_a_recipe_are_unchanged(recipe: str):
    train = TrainSettings(**yaml.safe_load((RECIPES / recipe).read_text())["train"])
    assert [stage_digest(stage, {}, "0" * 64)[:16] for stage in train.stages] == DIGESTS[recipe]
