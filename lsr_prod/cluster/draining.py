"""Nodes that can run work: a cloud announces the end of a spot machine before it takes the machine back."""

from typing import Any

import ray
from ray._private.state import state
from ray.util.client import ray as client


def usable_nodes() -> list[dict[str, Any]]:
    """Return the nodes of the cluster that are alive and have not announced their end, as Ray describes them."""
    ending, nodes = draining_nodes(), ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["NodeID"] not in ending]


def draining_nodes() -> frozenset[str]:
    """Return the ids of nodes that will end soon; none through a Ray client, which cannot ask for them."""
    if client.is_connected() or not ray.is_initialized():  # type: ignore[no-untyped-call]
        return frozenset()
    return frozenset(state.get_draining_nodes())
