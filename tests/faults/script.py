"""Script of one process of the committers: what it does, and the faults that it meets."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Script"]


@dataclass(frozen=True, slots=True)
class Script:
    """Work and faults of one process.

    A *moment* is a call whose place in the protocol matters: ``save-plan``; ``give-up`` of an unfinished plan, after
    its successor was linked; ``read`` of a slice; ``fence-table``, ``fence-quarantine``, ``log-table``,
    ``log-quarantine``, ``log-compact``: just before the commit of a log, after all checks; ``look`` and ``delete``: a
    vacuum looks a part up again, and deletes it.

    Attributes:
        work: ``encode``, ``compact`` or ``vacuum``.
        abandon: give up the newest plan, although it has committed waves.
        keep: versions of the table that the vacuum keeps.
        retention: seconds, of the vacuum.
        kill: (phase, nth, calls): SIGKILL after this many Python calls in the nth entry of the phase.
        gates: (phase or moment, nth) each: wait there for a message of the parent.
        eio: (call, nth): the nth ``write``, ``fsync``, ``link`` or ``read`` of a file fails (EIO), a write half-way; or
            the nth ``put``, ``get``, ``list`` or ``entry`` of a store.
        landed: the nth commit of a table succeeds but reports an error.
        refused: the nth commit of a table fails with an error.
        skew: seconds by which its clock is ahead.
        flaky: some documents, chosen by this word, fail in this attempt only.
        loses: ``read``: a slice loses its last row without an error; ``shuffle``: the wave loses a row on the way to
            the cells.
    """

    work: str = "encode"
    abandon: bool = False
    keep: tuple[int, ...] = ()
    retention: float = 0.0
    kill: tuple[str, int, int] | None = None
    gates: tuple[tuple[str, int], ...] = ()
    eio: tuple[str, int] | None = None
    landed: int | None = None
    refused: int | None = None
    skew: int = 0
    flaky: str | None = None
    loses: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for a message."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Script":
        """Read the output of ``to_json``."""
        gates = tuple((name, nth) for name, nth in fields.pop("gates"))
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return cls(gates=gates, **values)
