"""Demand for encoders that the cluster has no room for, in a form that Ray's autoscaler sees: pending actors.

A pending actor does nothing. It asks for the resources of an encoder, which no node has left beside the encoders there,
so it starts on a new node only. Then it ends, and the pool starts its encoders there.
"""

import time
from typing import Any

import ray

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.actors.places import PoolSize, pool_size
from lsr_prod.errors import EncoderLostError
from lsr_prod.logs import get_log

log = get_log(__name__)

_LOOK_S = 1.0


class Demand:
    """Pending actors. Use as a context manager; it withdraws the demand."""

    def __init__(self, size: PoolSize) -> None:
        self._size = size
        self._pending: list[tuple[Any, Any]] = []  # (actor, reference of the call that ends when it runs)

    def __enter__(self) -> "Demand":
        return self

    def __exit__(self, *_: object) -> None:
        self._withdraw(0)

    def set(self, encoders: int) -> None:
        """Ask for a number of encoders beyond those that the cluster has room for, in place of what was asked for."""
        wanted = max(encoders, 0)
        placed = ray.wait([call for _, call in self._pending], num_returns=len(self._pending), timeout=0)[0]
        for pending in [pending for pending in self._pending if pending[1] in placed]:
            ray.kill(pending[0])
            self._pending.remove(pending)
        self._withdraw(wanted)
        while len(self._pending) < wanted:
            self._pending.append(self._ask())

    def _withdraw(self, keep: int) -> None:
        for actor, _ in self._pending[keep:]:
            ray.kill(actor)
        del self._pending[keep:]

    def _ask(self) -> tuple[Any, Any]:
        size = self._size
        actor: Any = ray.remote(_Pending)
        handle = actor.options(**size.needs.reserved, label_selector=dict(size.labels)).remote()
        return handle, handle.__ray_ready__.remote()


class _Pending:
    """Actor without methods."""


def wait_for_room(settings: EncodeSettings) -> PoolSize:
    """Return the size of the pool, after waiting for a node with room for an encoder."""
    size = pool_size(settings)
    if size.nodes:
        return size
    asked = max(size.fewest, size.most or 0)
    log.info("waiting for nodes", extra={"fields": {"actors": asked, "gpus": size.gpus, "limit_s": size.wait_s}})
    end = time.monotonic() + size.wait_s
    with Demand(size) as demand:
        while not size.nodes:
            if time.monotonic() > end:
                raise EncoderLostError(
                    f"no node with room for an encoder joined within {size.wait_s:g} s; look at the autoscaler, "
                    "then run the job again"
                )
            demand.set(asked)
            time.sleep(_LOOK_S)
            size = pool_size(settings)
    return size
