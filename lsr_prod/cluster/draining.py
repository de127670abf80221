"""Nodes that have announced their end, for example before a cloud takes a spot machine back."""

import ray
from ray._private.state import state
from ray.util.client import ray as client


def draining_nodes() -> frozenset[str]:
    """Return the ids of nodes that will end soon; none through a Ray client, which cannot ask for them."""
    if client.is_connected() or not ray.is_initialized():  # type: ignore[no-untyped-call]
        return frozenset()
    return frozenset(state.get_draining_nodes())
