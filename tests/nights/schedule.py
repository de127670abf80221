"""Which night is disturbed, and how."""

import random
from dataclasses import dataclass

__all__ = ["GATES", "Night", "make_schedule"]

GATES = {"lacking": "documents", "garbled": "golden", "flooded": "documents"}
"""Gate that refuses a bad delivery, by kind."""

_KILLED = 0.4  # share of the nights


@dataclass(slots=True)
class Night:
    """One night.

    Attributes:
        number: 1, 2, 3 …
        kill: ``driver``, ``worker``, ``node``, or "".
        twice: whether the job is started twice at once.
        bad: kind of the bad delivery, a key of ``GATES``, or "".
        model: number of the bundle.
    """

    number: int
    kill: str = ""
    twice: bool = False
    bad: str = ""
    model: int = 0


def make_schedule(nights: int, seed: int) -> list[Night]:
    """Return the nights: two changes of the model, 40 % killed, a tenth each started twice and with a bad delivery."""
    rng = random.Random(seed)
    found = [Night(number, model=3 * (number - 1) // nights) for number in range(1, nights + 1)]
    tenth = max(1, nights // 10)
    first, *rest = found  # the first night builds everything; a bad delivery needs a current version
    killed = rng.sample(found, max(1, round(_KILLED * nights)))
    for place, night in enumerate(killed):
        night.kill = "node" if place < tenth and nights > 3 else "worker" if place % 3 == 1 else "driver"
    quiet = [night for night in rest if not night.kill]
    changing = {night.number for before, night in zip(found, rest, strict=False) if before.model != night.model}
    bad = rng.sample([night for night in quiet if night.number not in changing] or quiet, tenth)
    for place, night in enumerate(bad):
        night.bad = list(GATES)[place % len(GATES)]
    for night in rng.sample([night for night in found if not night.kill and not night.bad] or [first], tenth):
        night.twice = True
    return found
