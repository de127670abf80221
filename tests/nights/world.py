"""The world of the nights: an S3 endpoint, a Ray cluster whose nodes can be killed, and three bundles."""

import os
from pathlib import Path

from quickstart.models import model_folder
from tests.faults.cluster import local_cluster
from tests.faults.endpoint import local_s3
from tests.nights.bundles import make_bundle
from tests.nights.campaign import Campaign, Tally
from tests.nights.schedule import make_schedule

__all__ = ["run_nights"]

_WORKERS = 2  # nodes of one core


def run_nights(folder: Path, nights: int, documents: int, seed: int) -> Tally:
    """Run a campaign and return what it found.

    Args:
        folder: of bundles, configurations, logs and rebuilds.
        nights: number of nights, 3 or more.
        documents: documents of the first delivery.
        seed: of deliveries, kills and the schedule.
    """
    from lsr_prod.cluster import ray_session
    from lsr_prod.config import RaySettings

    os.environ["LSR_PROD_CACHE"] = str(folder / "node-cache")
    schedule = make_schedule(nights, seed)
    checkpoint = model_folder("splade-tiny")
    bundles = [make_bundle(checkpoint, folder, number) for number in sorted({night.model for night in schedule})]
    with local_s3() as options, local_cluster(_WORKERS) as cluster, ray_session(RaySettings(address=cluster.address)):
        campaign = Campaign(cluster, folder, "s3://lsr/nights", options, bundles, documents, seed)
        return campaign.run(schedule)
