"""A mutant of the exactly-once protocol: one wrong line, which a scenario must detect.

A mutant is an exact replacement of text in a copy of the package. Text that is no longer there is an error: then the
mutant must be brought up to date.
"""

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong change of the protocol.

    Attributes:
        name: of the change.
        file: path inside ``lsr_prod``.
        edits: (text, replacement) pairs; every text occurs exactly once in the file.
        scenario: the scenario that detects it.
        buckets: of the scenario's table.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    scenario: str
    buckets: int = 4
