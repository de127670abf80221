"""Publications: the numbered history of an index, ``publications/000001.json`` and on.

Each publication names the sha256 of the one before it, so the signature of the newest covers the history. A pin,
``pins/000001.json``, keeps a publication from retention.
"""

from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.errors import DigestMismatchError, FormatVersionError
from lsr_prod.storage.formats.digest import digest_json

PUBLICATION_FORMAT = 3


@dataclass(frozen=True, slots=True)
class Forced:
    """A gate that refused the version, but was overruled."""

    gate: str  # its name
    sentence: str  # what the gate has found
    reason: str  # why it was overruled, for people


@dataclass(frozen=True, slots=True)
class Signature:
    """An ed25519 signature of a publication."""

    key: str  # sha256 of the public key (32 bytes), its first 16 hexadecimal digits
    value: str  # the signature of ``Publication.signed_bytes``, base64


@dataclass(frozen=True, slots=True)
class Publication:
    """One entry in the history of an index: the version that readers use from then on."""

    number: int  # 1, 2, 3 …; readers use the largest
    version: str  # sha256 of the version
    published_at: str  # UTC, ISO 8601
    note: str = ""  # reason, for people, such as "rollback to 41"
    by: str = ""  # who published it: user and host
    forced: tuple[Forced, ...] = ()  # gates that were overruled
    report: str = ""  # sha256 of the report of the gates, ``reports/<sha256>.json``; "": they have written none
    previous: str = ""  # sha256 of publication ``number - 1``; "" for the first
    signature: Signature | None = None  # signature of the publisher; None: it is not signed

    @property
    def sha(self) -> str:
        """Sha256 of all fields except the signature."""
        return digest_json(self._fields())

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that a signature signs: their purpose and ``sha``."""
        return b"lsr_prod publication " + self.sha.encode()

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk; ``sha256`` is the digest of the other fields except the signature."""
        signature = {"signature": asdict(self.signature)} if self.signature is not None else {}
        return {**self._fields(), "sha256": self.sha, **signature}

    def _fields(self) -> dict[str, Any]:
        value = {"format": PUBLICATION_FORMAT, **asdict(self), "forced": [asdict(one) for one in self.forced]}
        del value["signature"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Publication":
        """Read the form of ``to_json``."""
        if value.get("format") != PUBLICATION_FORMAT:
            raise FormatVersionError(
                f"publication {value['number']} has format {value.get('format')}, this release reads "
                f"{PUBLICATION_FORMAT}; install the release that wrote it"
            )
        signature = value.get("signature")
        names = ("number", "version", "published_at", "note", "by", "report", "previous")
        publication = cls(
            **{name: value[name] for name in names},
            forced=tuple(Forced(one["gate"], one["sentence"], one["reason"]) for one in value["forced"]),
            signature=Signature(str(signature["key"]), str(signature["value"])) if signature is not None else None,
        )
        if publication.to_json() != value:
            raise DigestMismatchError("the publication differs from its recorded sha256; publish the version again")
        return publication


def publication_name(number: int) -> str:
    """Return the file name of publication ``number``: six digits or more."""
    return f"{number:06d}.json"


@dataclass(frozen=True, slots=True)
class PublicationPin:
    """A publication that retention does not delete."""

    number: int  # number of the publication
    version: str  # sha256 of its version
    pinned_at: str  # UTC, ISO 8601
    by: str  # who pinned it
    reason: str  # why, for people

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
