"""Serve an index on a Ray cluster: a router sends each query to the replicas of all shard groups.

::

    with ray_session(settings.ray):
        searcher = start(settings.serve)     # or ServedSearcher.connect("lsr_prod")
        searcher.search("how do locks work", k=10, overlap_threshold=0.4)

Needs the extra ``jobs``. Importing a name imports Ray.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsr_prod.serving.application import build_application, deployments, start
    from lsr_prod.serving.client import ServedSearcher
    from lsr_prod.serving.groups import OverloadedError, UnavailableError

__all__ = ["OverloadedError", "ServedSearcher", "UnavailableError", "build_application", "deployments", "start"]

_MODULES = {
    "OverloadedError": "groups",
    "ServedSearcher": "client",
    "UnavailableError": "groups",
    "build_application": "application",
    "deployments": "application",
    "start": "application",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
