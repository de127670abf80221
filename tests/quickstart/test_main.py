"""The deployments of the quickstart."""

import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from quickstart.__main__ import load_deployments

CONFIG = ["--config", "quickstart/deployment.yaml"]


def outputs(deployment: Deployment) -> set[str]:
    """Places that the jobs of a deployment write."""
    train, export, encode, index = deployment.train, deployment.export, deployment.encode, deployment.index
    assert export is not None
    assert encode is not None
    assert index is not None
    return {export.output, encode.table, index.output, *([train.output] if train else [])}


def test_default_runs_inference_free_training_and_hybrid_alone() -> None:
    (deployment,) = load_deployments(CONFIG).values()
    assert deployment.train is not None
    assert deployment.evaluate is not None
    assert deployment.index is not None
    assert [stage.stage for stage in deployment.train.stages] == ["set_encoder", "finetune"]
    assert deployment.index.bm25
    assert [system.kind for system in deployment.evaluate.systems or []] == ["bm25", "sparse", "hybrid"]


def test_variants_run_after_the_default_and_write_other_places() -> None:
    deployments = load_deployments([*CONFIG, "--pair", "--checkpoint"])
    assert list(deployments) == ["", "pair", "checkpoint"]
    places = [outputs(deployment) for deployment in deployments.values()]
    assert len(set.union(*places)) == sum(map(len, places))
    assert deployments["checkpoint"].train is None
    assert len({deployment.evaluate.qrels for deployment in deployments.values() if deployment.evaluate}) == 1


def test_unknown_option_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="pairs"):
        load_deployments([*CONFIG, "--pairs"])
