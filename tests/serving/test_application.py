"""The application's deployments; test_serving.py starts them."""

from lsr_prod.config import ServeSettings
from lsr_prod.serving.application import build_application


def test_the_application_has_a_deployment_per_group_and_a_router() -> None:
    settings = ServeSettings(index="/index", shard_groups=2, replicas=3, routers=2, cpus=0.5, concurrency=7)
    router = build_application(settings)._bound_deployment
    assert (router.name, router.num_replicas, router.max_ongoing_requests) == ("router", 2, 7)
    assert router.ray_actor_options["num_cpus"] == 0.5
    groups = [group._bound_deployment for group in router.init_args]
    assert [(group.name, group.num_replicas) for group in groups] == [("shards-0", 3), ("shards-1", 3)]
    assert [group.init_args for group in groups] == [("/index", 0, 2), ("/index", 1, 2)]
