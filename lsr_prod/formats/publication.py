"""Publications: the numbered history of an index, ``publications/000001.json`` and on."""

from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import DigestMismatchError
from lsr_prod.formats.digest import digest_json

__all__ = ["Publication", "publication_name"]


@dataclass(frozen=True, slots=True)
class Publication:
    """One entry of the index's history: the version that readers use from now on.

    Attributes:
        number: 1, 2, 3 …; readers follow the largest.
        version: sha256 of the version.
        published_at: UTC, ISO 8601.
        note: why, for people ("rollback to 41").
    """

    number: int
    version: str
    published_at: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk; ``sha256`` is of the rest."""
        value = {"number": self.number, "version": self.version, "published_at": self.published_at, "note": self.note}
        return {**value, "sha256": digest_json(value)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Publication":
        """Read what ``to_json`` wrote.

        Raises:
            DigestMismatchError: it is not what ``to_json`` wrote.
        """
        publication = cls(value["number"], value["version"], value["published_at"], value["note"])
        if publication.to_json() != value:
            raise DigestMismatchError("the publication differs from its recorded sha256; publish the version again")
        return publication


def publication_name(number: int) -> str:
    """File name of publication ``number``: six digits or more."""
    return f"{number:06d}.json"
