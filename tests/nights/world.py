"""The world of the nights: an object store, a Ray cluster whose nodes can be killed, and three bundles."""

import os
from pathlib import Path

from quickstart.models import model_folder
from tests.nights.bundles import make_bundle
from tests.nights.campaign import Campaign, Tally
from tests.nights.cluster import on_machines, on_processes
from tests.nights.schedule import Night

__all__ = ["run_nights"]


def run_nights(folder: Path, schedule: list[Night], documents: int, seed: int, *, machines: bool = False) -> Tally:
    """Run a campaign and return what it found.

    Args:
        folder: of bundles, configurations, logs and rebuilds.
        schedule: the nights.
        documents: documents of the first delivery.
        seed: of deliveries and kills.
        machines: every node is a machine in namespaces of its own, which needs root; else they are processes.
    """
    from lsr_prod.cluster import ray_session
    from lsr_prod.config import RaySettings

    os.environ["LSR_PROD_CACHE"] = str(folder / "node-cache")
    checkpoint = model_folder("splade-tiny")
    bundles = [make_bundle(checkpoint, folder, number) for number in sorted({night.model for night in schedule})]
    with (
        on_machines(folder) if machines else on_processes() as cluster,
        ray_session(RaySettings.model_validate(cluster.own_ray)),
    ):
        return Campaign(cluster, folder, "s3://lsr/nights", bundles, documents, seed).run(schedule)
