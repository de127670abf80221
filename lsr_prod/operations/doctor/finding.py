"""What a check found."""

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of one check.

    Attributes:
        check: name of the check, with what it looked at.
        verdict: ``ok``; ``warning``: jobs run, but slower or with less safety; ``fault``: jobs fail.
        found: what was measured.
        remedy: what to do; "" if it is sound.
    """

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the fields by name."""
        return asdict(self)
