"""Digests of the stages of all recipes: a change of code or of a setting's name must not repeat finished stages."""

from pathlib import Path

import pytest
import yaml

from lsr_prod.config.training import TrainSettings
from lsr_prod.training.stages.registry import stage_digest

RECIPES = Path(__file__).parents[3] / "jobs" / "recipes"
DIGESTS = {
    "casing-regularizer.yaml": ["46c778d5631870c0"],
    "casing-uncased-vocabulary.yaml": ["713a5b1f01272267", "dc615fde5ad78889"],
    "casing.yaml": ["d8e3d3ab68e3f176", "dc615fde5ad78889"],
    "csplade-echo.yaml": ["be38b5a34ddc6cee", "a801bbaf724f2a38", "bef547b1b4bec68f", "80e25b519d728ffe"],
    "csplade.yaml": ["be38b5a34ddc6cee", "af48d93b754dacee", "bef547b1b4bec68f", "80e25b519d728ffe"],
    "emlm.yaml": ["6318089cfce5a40c", "9b8702b008779157"],
    "esplade-pruned.yaml": ["308882f1f8e6f6bd"],
    "esplade.yaml": ["e00df8bdd3abd84c"],
    "head-rescaling.yaml": ["d8ca341f1fb573f4", "0c2b3d75eea0f9c7"],
    "inference-free.yaml": ["5e561f5c4c5c3f86", "0d6b62b7a4a16449"],
    "splade.yaml": ["33816e071fba6e1f"],
    "vocabulary-transfer-domain.yaml": ["8b84c173d0fb005b", "1e22052c98b701ce", "c74186618d6d6c14", "bc3baf565507056e"],
    "vocabulary-transfer-head.yaml": ["5dfe5017442b7bbf", "5d18cf299a1472e2", "a3f6a61cd9373551"],
    "vocabulary-transfer.yaml": ["5281790a240c4386", "e872c0d901ef0bd7", "c74186618d6d6c14", "a3f6a61cd9373551"],
}


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.glob("*.yaml")))
def test_stage_digests_of_a_recipe_are_unchanged(recipe: str):
    train = TrainSettings(**yaml.safe_load((RECIPES / recipe).read_text())["train"])
    assert [stage_digest(stage, {}, "0" * 64)[:16] for stage in train.stages] == DIGESTS[recipe]
