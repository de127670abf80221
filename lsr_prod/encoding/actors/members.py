"""Encoder actors of a pool: start one on a node, and find out when it runs."""

import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod.encoding.actors.actor import BLOCKS_AT_A_TIME, EncoderActor, ModelSettings
from lsr_prod.encoding.actors.places import PoolSize

LOST = (RayActorError, ActorUnschedulableError)
"""Errors of an actor that died; the second: its node has left before the actor started."""

_PAUSE_S = 0.1  # between two questions to an actor that is restarted


@dataclass(eq=False, slots=True)
class Member:
    """An actor, its node, and its state.

    Attributes:
        actor: handle.
        node: that it was started on.
        ready: it runs; an actor that starts, or that Ray restarts, gets no calls: they would fail at once.
        starting: reference of the call that ends when it runs; None: not called yet.
        ask_at: time of that call.
        load: unfinished calls.
        leaving: it gets no more calls.
    """

    actor: Any
    node: str
    ready: bool = False
    starting: Any = None
    ask_at: float = 0.0
    load: int = 0
    leaving: bool = False


def start_member(size: PoolSize, model: ModelSettings, node: str, *, pinned: bool) -> Member:
    """Start an actor."""
    actor: Any = ray.remote(EncoderActor)
    options = actor.options(
        **size.needs.reserved,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=BLOCKS_AT_A_TIME,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=not pinned),
    )
    return Member(options.remote(model), node)


def ask(member: Member) -> None:
    """Find out whether an actor runs, and ask again some time after a call that failed, because it is restarted.

    A pinned actor is never restarted on another node: a node without cores, such as the head, must not encode.
    """
    if member.starting is None and time.monotonic() >= member.ask_at:
        member.starting = member.actor.__ray_ready__.remote()
    if member.starting is None or not ray.wait([member.starting], timeout=0)[0]:
        return
    try:
        ray.get(member.starting)
        member.ready = True
    except LOST:
        member.ask_at = time.monotonic() + _PAUSE_S
    member.starting = None
