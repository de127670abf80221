"""Digests of the stages of all recipes: a change of code or of a setting's name must not repeat finished stages."""

from pathlib import Path

import pytest
import yaml

from lsr_prod.config.train import TrainSettings
from lsr_prod.training.stages.registry import stage_digest

RECIPES = Path(__file__).parents[3] / "jobs" / "recipes"
DIGESTS = {
    "casing-regularizer.yaml": ["42f8fb9b3bcfef73"],
    "casing-uncased-vocabulary.yaml": ["eb550e48e91bf17c", "9ab69f733554a516"],
    "casing.yaml": ["f4578c7207741adb", "9ab69f733554a516"],
    "csplade-echo.yaml": ["426be055672d8440", "5373b03cce79c9df", "78b5049a94ebdc45"],
    "csplade.yaml": ["426be055672d8440", "d3fa69e25f6d031c", "78b5049a94ebdc45"],
    "emlm.yaml": ["9fcac5bbd37dcf12", "6647146d39dee67e"],
    "esplade-pruned.yaml": ["718cfe6fecb5a67f"],
    "esplade.yaml": ["2c2cf0478aad5ff9"],
    "head-rescaling.yaml": ["ca80551febd89f8d", "665cd290f5bc684d"],
    "inference-free.yaml": ["b61b6b760594244d", "a0942b1e370bec1d"],
    "splade.yaml": ["e857c2abd053e2f2"],
    "vocabulary-transfer-domain.yaml": ["601c76e0e4e7b3e8", "3d51cba3387358a9", "3eacbb481a29a9ef", "e96c649cf190e286"],
    "vocabulary-transfer-head.yaml": ["88d5735c2a88df0f", "52ab5317573f6318", "169c06b836ddb12f"],
    "vocabulary-transfer.yaml": ["e27ab9f85f43c68b", "459f4775ae8cfad7", "be3a819fef07eef8", "169c06b836ddb12f"],
}


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.glob("*.yaml")))
def test_stage_digests_of_a_recipe_are_unchanged(recipe: str):
    train = TrainSettings(**yaml.safe_load((RECIPES / recipe).read_text())["train"])
    assert [stage_digest(stage, {}, "0" * 64)[:16] for stage in train.stages] == DIGESTS[recipe]
