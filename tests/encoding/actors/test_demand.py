"""Encoders that the cluster has no room for are demand that Ray's autoscaler sees."""

import time
from typing import Any

import pytest
import ray
from ray._raylet import GcsClient
from ray.autoscaler.v2.sdk import get_cluster_resource_state

from lsr_prod.encoding.actors.places import Demand, current_places, pool_size, wait_for_room
from lsr_prod.errors import ConfigError, EncoderLostError
from tests.encoding.actors.test_pool import settings

NONE: frozenset[str] = frozenset()
NODE = {"NodeID": "n1", "Alive": True, "Labels": {"disk": "ssd"}}


def requested() -> list[tuple[dict[str, float], int]]:
    """Return (resources, number) of everything that Ray's autoscaler is asked for."""
    state = get_cluster_resource_state(GcsClient(address=ray.get_runtime_context().gcs_address))
    return [(dict(each.request.resources_bundle), each.count) for each in state.pending_resource_requests]


def wait_for(wanted: list[tuple[dict[str, float], int]]) -> None:
    end = time.monotonic() + 30
    while requested() != wanted and time.monotonic() < end:
        time.sleep(0.05)
    assert requested() == wanted


def nodes(
    monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float], draining: frozenset[str] = frozenset()
) -> None:
    found = [{**NODE, "NodeID": f"n{number}", "Resources": each} for number, each in enumerate(resources)]
    monkeypatch.setattr("ray.nodes", lambda: found)
    monkeypatch.setattr("lsr_prod.cluster.tasks.draining_nodes", lambda: draining)


def test_missing_encoders_are_demand_of_the_autoscaler(ray_local: None):
    size = pool_size(settings(max_actors=5, provider="cuda"))
    assert (size.nodes, size.planned) == ((), 5)
    with Demand(size) as demand:
        demand.set(2)
        wait_for([({"CPU": 1.0, "GPU": 0.25}, 2)])
        demand.set(1)
        wait_for([({"CPU": 1.0, "GPU": 0.25}, 1)])
    wait_for([])


def test_job_without_room_waits_only_if_the_number_of_actors_is_set(ray_local: None, caplog: pytest.LogCaptureFixture):
    with pytest.raises(ConfigError, match=r"set cpu or auto, or encode\.max_actors"):
        wait_for_room(settings(provider="cuda"))
    with caplog.at_level("INFO"), pytest.raises(EncoderLostError, match=r"no node with room .* within 0 s"):
        wait_for_room(settings(provider="cuda", min_actors=1).model_copy(update={"node_wait_seconds": 0}))
    assert [vars(record)["event"] for record in caplog.records] == ["waiting for nodes"]


def test_places_follow_memory_labels_and_announced_ends(monkeypatch: pytest.MonkeyPatch):
    big = {"CPU": 8, "memory": 10e9}
    nodes(monkeypatch, big, {"CPU": 2, "memory": 1e9}, draining=frozenset(["n1"]))
    assert len(pool_size(settings()).nodes) == 8
    assert len(pool_size(settings(actor_memory_megabytes=3000)).nodes) == 3
    assert len(pool_size(settings(labels={"disk": "in(ssd, nvme)"})).nodes) == 8
    with pytest.raises(ConfigError, match=r"encode\.labels: no node has disk=hdd"):
        pool_size(settings(labels={"disk": "hdd"}))
    with pytest.raises(ConfigError, match=r"encode\.actor_memory_megabytes: nodes have at most 10000 MB"):
        pool_size(settings(actor_memory_megabytes=20_000))
    size = pool_size(settings(max_actors=20))
    nodes(monkeypatch, big, big, draining=frozenset(["n0"]))
    assert current_places(size) == ("n1",) * 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actors": 2, "max_actors": 3}, "give either actors or these"),
        ({"actors": 2, "min_actors": 3}, "give either actors or these"),
        ({"min_actors": 4, "max_actors": 3}, r"3 is less than encode\.min_actors \(4\)"),
        ({"labels": {"disk": "in()"}}, r"in\(\) is not a condition"),
    ],
)
def test_settings_of_actors_that_contradict_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        settings(**changes)
