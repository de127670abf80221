"""Workers, cores and GPUs that follow the cluster, where the settings say nothing."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from lsr_prod.config import RaySettings, TrainSettings
from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training import chain_plan
from lsr_prod.training.chain_plan import Machine, choose_resources, with_resources
from lsr_prod.training.stages.registry import accepts_workers

STAGE = {"data": {"paths": ["x"], "kind": "pairs"}, "steps": 3, "objective": {"losses": [{"loss": "info_nce"}]}}


def train(**settings: Any) -> TrainSettings:
    return TrainSettings.model_validate({"model": "m", "output": "o", "work": "w", "stages": [STAGE], **settings})


def chosen(
    settings: dict[str, Any], found: list[Machine], accepts: Callable[[int], bool] = lambda _: True, **limits: int
) -> tuple[Any, ...]:
    one = choose_resources(train(**settings), found, accepts, **limits)
    return one.workers, one.cpus_per_worker, one.use_gpu


CPU = [Machine(8, 0)]
GPUS = [Machine(32, 4), Machine(64, 4), Machine(16, 0)]


@pytest.mark.parametrize(
    ("settings", "found", "expected"),
    [
        ({}, CPU, (1, 8, False)),
        ({}, [Machine(2, 0)], (1, 2, False)),
        ({}, [Machine(8, 0), Machine(6, 0)], (2, 6, False)),
        ({"workers": 3}, CPU, (3, 2, False)),
        ({"workers": 3}, [Machine(8, 0), Machine(2, 0)], (3, 2, False)),
        ({"workers": 20}, CPU, (20, 1, False)),
        ({"cpus_per_worker": 1}, CPU, (1, 1, False)),
        ({"cpus_per_worker": 0.5, "workers": 2, "use_gpu": False}, GPUS, (2, 0.5, False)),
        ({}, GPUS, (8, 8, True)),
        ({"workers": 2}, GPUS, (2, 32, True)),
        ({"workers": 9}, GPUS, (9, 10, False)),
        ({"use_gpu": False}, GPUS, (3, 32, False)),
        ({"use_gpu": True}, CPU, (1, 1, True)),
    ],
)
def test_unset_resources_follow_cluster(
    settings: dict[str, Any], found: list[Machine], expected: tuple[Any, ...]
) -> None:
    assert chosen(settings, found) == expected


def test_workers_are_as_many_as_batches_accept() -> None:
    assert chosen({}, GPUS, lambda workers: workers <= 5)[0] == 5
    assert chosen({}, GPUS, lambda workers: 12 % workers == 0)[0] == 6
    assert chosen({"workers": 8}, GPUS, lambda workers: workers <= 5)[0] == 8, "what is set is checked, not changed"


def test_thread_limit_applies_only_to_chosen_cores() -> None:
    assert chosen({}, CPU, threads=1) == (1, 1, False)
    assert chosen({"cpus_per_worker": 4}, CPU, threads=1) == (1, 4, False)


def test_min_workers_above_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.min_workers: it is 3, but this cluster has room for 1"):
        chosen({"min_workers": 3}, CPU)


@pytest.mark.parametrize(
    ("settings", "address", "line"),
    [
        ({}, None, "training on 1 worker with 2 cores (of 4)"),
        ({}, "somewhere:6379", "training on 1 worker with 4 cores (of 4)"),
        ({"workers": 2, "cpus_per_worker": 1}, None, "training on 2 workers with 1 core each (of 4)"),
    ],
)
def test_one_line_says_what_is_used(
    settings: dict[str, Any],
    address: str | None,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(chain_plan, "machines", lambda: [Machine(4, 0)])
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with caplog.at_level(logging.INFO, "lsr_prod"):
        with_resources(train(**settings), RaySettings(address=address), lambda _: True)
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [line]


def test_batches_of_all_stages_decide_number_of_workers() -> None:
    small = FinetuneSettings.model_validate({**STAGE, "batch": {"queries": 8, "accumulate": 2}})
    shards = FinetuneSettings.model_validate({**STAGE, "batch": {"queries": 8}, "scale": {"strategy": "fsdp"}})
    texts = {"paths": ["x"], "kind": "texts"}
    blocks = AdaptCausalSettings.model_validate(
        {"stage": "adapt_causal", "data": texts, "steps": 1, "batch": {"texts": 2}}
    )
    assert [number for number in range(1, 9) if accepts_workers([small], number)] == [1, 2, 3, 4]
    assert [number for number in range(1, 9) if accepts_workers([shards], number)] == [1, 2, 4, 8]
    assert [number for number in range(1, 9) if accepts_workers([small, blocks], number)] == [1, 2]


def test_flash_attention_without_gpus_is_refused() -> None:
    stage = {**STAGE, "scale": {"attention": "flash", "precision": "bf16"}}
    with pytest.raises(ConfigError, match="flash needs GPUs, and none are used"):
        choose_resources(train(stages=[stage]), CPU, lambda _: True)
    assert choose_resources(train(stages=[stage]), GPUS, lambda _: True).use_gpu
