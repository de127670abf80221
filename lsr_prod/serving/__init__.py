"""Serve an index on a Ray cluster: a router sends each query to the replicas of all shard groups.

::

    with ray_session(settings.ray):
        searcher = start(settings.serve)     # or ServedSearcher.connect("lsr_prod")
        searcher.search("how do locks work", k=10, overlap_threshold=0.4)

Needs the extra ``jobs``. Importing a name imports Ray.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.serving.application import build_application, deployments, start
    from lsr_prod.serving.client import ServedSearcher
    from lsr_prod.serving.groups import OverloadedError, UnavailableError

__all__ = ["OverloadedError", "ServedSearcher", "UnavailableError", "build_application", "deployments", "start"]

__getattr__ = lazy_names(
    __name__,
    {
        "OverloadedError": "lsr_prod.serving.groups",
        "ServedSearcher": "lsr_prod.serving.client",
        "UnavailableError": "lsr_prod.serving.groups",
        "build_application": "lsr_prod.serving.application",
        "deployments": "lsr_prod.serving.application",
        "start": "lsr_prod.serving.application",
    },
)
