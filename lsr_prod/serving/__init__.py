"""Serving an index from a Ray cluster: a router scatters each query to replicas that hold the shards.

::

    with ray_session(settings.ray):
        searcher = start(settings.serve)     # or ServedSearcher.connect("lsr_prod")
        searcher.search("how do locks work", k=10, overlap_threshold=0.4)

It needs the extra ``jobs``.
"""

from lsr_prod.serving.application import build_application, deployments, start
from lsr_prod.serving.calls import UnavailableError
from lsr_prod.serving.client import ServedSearcher

__all__ = ["ServedSearcher", "UnavailableError", "build_application", "deployments", "start"]
