"""The application's deployments; test_serving.py starts them."""

from pathlib import Path

from ray import _raylet

from lsr_prod.config import ServeSettings
from lsr_prod.serving.application import build_application


def test_the_application_has_a_deployment_per_group_and_a_router() -> None:
    settings = ServeSettings(index="/index", shard_groups=2, replicas=3, routers=2, cpus=0.5, concurrency=7, queue=5)
    router = build_application(settings)._bound_deployment
    assert (router.name, router.num_replicas) == ("router", 2)
    assert (router.max_ongoing_requests, router.max_queued_requests) == (7 + 5 + 16, 7 + 5)
    assert (router.backpressure_config.status_code, router.backpressure_config.retry_after_s) == (503, 1)
    assert router.ray_actor_options["num_cpus"] == 0.5
    assert router.init_kwargs["settings"] == settings
    groups = [group._bound_deployment for group in router.init_args]
    assert [(group.name, group.num_replicas) for group in groups] == [("shards-0", 3), ("shards-1", 3)]
    assert [group.init_args for group in groups] == [(0,), (1,)]
    known = Path(_raylet.__file__).read_bytes()
    for group in groups:
        variables = group.ray_actor_options["runtime_env"]["env_vars"]
        assert [name for name in variables if name.removeprefix("RAY_").encode() not in known] == []


def test_one_shard_group_needs_routers_only() -> None:
    settings = ServeSettings(index="/index", replicas=3, threads=4)
    router = build_application(settings)._bound_deployment
    assert (router.num_replicas, router.init_args, router.init_kwargs["settings"]) == (3, (), settings)
    assert settings.reserved_cpus == 3
    assert ServeSettings(index="/index", routers=1).router_count == 1
    assert ServeSettings(index="/index").router_count == 2  # the loss of one is no outage
    assert ServeSettings(index="/index", shard_groups=2, cpus=0.5).reserved_cpus == 3
