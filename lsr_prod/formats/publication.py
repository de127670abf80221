"""Publications: the numbered history of an index, ``publications/000001.json`` and on."""

from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import DigestMismatchError
from lsr_prod.formats.digest import digest_json

__all__ = ["Publication", "publication_name"]


@dataclass(frozen=True, slots=True)
class Publication:
    """One entry in the history of an index: the version that readers use from then on.

    Attributes:
        number: 1, 2, 3 …; readers use the largest.
        version: sha256 of the version.
        published_at: UTC, ISO 8601.
        note: reason, for people, such as "rollback to 41".
    """

    number: int
    version: str
    published_at: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk; ``sha256`` is the digest of the other fields."""
        value = {"number": self.number, "version": self.version, "published_at": self.published_at, "note": self.note}
        return {**value, "sha256": digest_json(value)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Publication":
        """Read the form of ``to_json``.

        Raises:
            DigestMismatchError: a field differs from the recorded digest.
        """
        publication = cls(value["number"], value["version"], value["published_at"], value["note"])
        if publication.to_json() != value:
            raise DigestMismatchError("the publication differs from its recorded sha256; publish the version again")
        return publication


def publication_name(number: int) -> str:
    """Return the file name of publication ``number``: six digits or more."""
    return f"{number:06d}.json"
