"""Scripts of lives: settings and operations, drawn from a seed, as JSON, and made shorter while they still fail."""

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from tests.faults.lives.small import SmallSizes

__all__ = ["LifeScript", "Operation", "draw", "shorten"]

_CHANGES = {
    "add": 5, "copy": 5, "edit": 4, "append": 3, "rename": 2, "relocate": 1, "touch": 1, "truncate": 2, "older": 3,
    "empty": 1, "delete": 1,
}  # fmt: skip
_GROWTH = ("add", "append", "copy")
_WORK = {"night": 6, "crash": 5, "zombie": 1, "compact": 1, "vacuum": 1, "purge": 1}
_INDEX = {"index": 5, "takedown": 2, "restore": 2, "rollback": 1, "collect": 1, "bundle": 1}
_STEPS = (3, 6)
_INDEXED = (0.0, 0.0, 0.9)  # share of the steps with an operation on the index
_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a life; its arguments are reduced to what exists when it is carried out."""

    name: str
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class LifeScript:
    """A life.

    Attributes:
        rule: ``encode.on_duplicate``.
        buckets: of the sparse table.
        overlap: share of the rows of a file with an id of another file.
        sizes: of plans.
        operations: in order.
    """

    rule: str
    buckets: int
    overlap: float
    sizes: SmallSizes
    operations: tuple[Operation, ...]

    def to_json(self) -> str:
        """Return the script as one line."""
        values = asdict(self) | {"operations": [list(asdict(one).values()) for one in self.operations]}
        return json.dumps(values | {"sizes": list(asdict(self.sizes).values())})

    @classmethod
    def from_json(cls, text: str) -> "LifeScript":
        """Read what ``to_json`` wrote."""
        values = json.loads(text)
        operations = tuple(Operation(*one) for one in values.pop("operations"))
        return cls(**values | {"sizes": SmallSizes(*values["sizes"])}, operations=operations)


def draw(seed: int) -> LifeScript:
    """Return the life of a seed."""
    rng = random.Random(f"life {seed}")
    operations = [_operation(rng, "add") for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        operations.append(_operation(rng, "copy"))
    indexed = rng.choice(_INDEXED)
    for _ in range(rng.randint(*_STEPS)):
        interrupted = operations[-1].name == "crash" and rng.random() < 0.6  # a source that changes before the next run
        changes = rng.choice([1, 1, 2] if interrupted else [0, 1, 1, 1, 2, 3])
        operations += [_operation(rng, _one_of(rng, _CHANGES)) for _ in range(changes)]
        work = "night" if interrupted else _one_of(rng, _WORK)
        if work == "crash":  # a kill needs work to interrupt
            operations.append(_operation(rng, rng.choice(_GROWTH)))
        operations.append(_operation(rng, work))
        if rng.random() < indexed:
            operations.append(_operation(rng, _one_of(rng, _INDEX)))
    return LifeScript(
        rule=rng.choice(["first", "last"]),
        buckets=rng.choice([1, 2, 8, 8]),
        overlap=rng.choice([0.0, 0.05, 0.2]),
        sizes=SmallSizes(rng.choice([1, 1, 2, 8]), rng.choice([1, 2, 8]), rng.choice([1, 2])),
        operations=tuple(operations),
    )


def shorten(script: LifeScript, fails: Callable[[LifeScript], bool], tries: int = 200) -> LifeScript:
    """Return a script with fewer operations that still fails: runs of operations are left out, long ones first."""
    length = max(len(script.operations) // 2, 1)
    while length:
        start = 0
        while start < len(script.operations) and tries:
            shorter = replace(script, operations=script.operations[:start] + script.operations[start + length :])
            tries -= 1
            if fails(shorter):
                script = shorter
            else:
                start += length
        length //= 2
    return script


def _operation(rng: random.Random, name: str) -> Operation:
    return Operation(name, *(rng.randrange(_LARGEST) for _ in range(3)))


def _one_of(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]
