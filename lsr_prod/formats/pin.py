"""Pins of publications: ``pins/000041.json`` keeps publication 41 and its version until the pin is removed."""

from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.errors import DigestMismatchError
from lsr_prod.formats.digest import digest_json


@dataclass(frozen=True, slots=True)
class PublicationPin:
    """A publication that retention does not delete.

    Attributes:
        number: number of the publication.
        version: sha256 of its version.
        pinned_at: UTC, ISO 8601.
        by: who pinned it.
        reason: why, for people.
    """

    number: int
    version: str
    pinned_at: str
    by: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk; ``sha256`` is the digest of the other fields."""
        value = asdict(self)
        return {**value, "sha256": digest_json(value)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "PublicationPin":
        """Read the form of ``to_json``."""
        pin = cls(value["number"], value["version"], value["pinned_at"], value["by"], value["reason"])
        if pin.to_json() != value:
            raise DigestMismatchError("the pin differs from its recorded sha256; remove it and pin again")
        return pin
