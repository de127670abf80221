"""Publications of an index: the current one, one by number, the conditional creation of the next, and their pins.

A process that trusts keys (``storage.signatures``) reads only publications that one of them signed, or that are in the
history of such a publication.

A pin keeps a publication and its version from retention. It is a file that is created only if absent. A pin that is
created while retention runs is either seen by retention, which then keeps the publication and its version, or refused:
``pin_publication`` looks for the publication after it has created the pin, and ``delete_publication`` looks for a pin
after it has deleted the publication, which it puts back.

Functions take the folder of an index, or a ``Store``.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lsr_prod.errors import ArtifactError, FormatVersionError, PublicationError, SignatureError
from lsr_prod.logs import get_log
from lsr_prod.storage import signatures, stores
from lsr_prod.storage.formats.digests import is_sha256, parsing, record_bytes
from lsr_prod.storage.formats.index_format import Publication, PublicationPin, publication_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

log = get_log(__name__)

_NUMBERED = re.compile(r"(?:publications|pins)/(\d{6,})\.json")


def publication_numbers(index: stores.Store | Path) -> list[int]:
    """Return the numbers of all publications, ascending."""
    return _numbers(index, "publications")


def find_current_publication(index: stores.Store | Path) -> Publication | None:
    """Return the publication with the largest number; None if nothing is published.

    If it is superseded and deleted before it is read, the next one is read.
    """
    numbers = publication_numbers(index)
    while numbers:
        try:
            return read_publication(index, numbers[-1])
        except PublicationError:
            before, numbers = numbers, publication_numbers(index)
            if numbers == before:
                raise
    return None


def current_publication(index: stores.Store | Path) -> Publication:
    """Return the publication with the largest number."""
    found = find_current_publication(index)
    if found is None:
        raise PublicationError(
            f"{stores.as_store(index).uri} has no publication; build an index there with lsr-prod index build"
        )
    return found


def read_publication(index: stores.Store | Path, number: int) -> Publication:
    """Return publication ``number``."""
    store = stores.as_store(index)
    found = _read(store, number)
    if keys := signatures.trusted_keys():
        _check_signed(store, found, keys)
        _check_previous(store, found)
    return found


def _check_previous(store: stores.Store, publication: Publication) -> None:
    """Compare the publication before with the digest in ``publication``, unless retention has deleted it."""
    try:
        before = _read(store, publication.number - 1).sha if publication.number > 1 else ""
    except PublicationError:
        return
    except ArtifactError as error:
        raise _changed(store, publication.number) from error
    if before != publication.previous:
        raise _changed(store, publication.number)


def _check_signed(store: stores.Store, publication: Publication, keys: "Mapping[str, Ed25519PublicKey]") -> None:
    """Find a trusted signature of the publication, or of a later one whose history contains it."""
    latest = publication
    while not signatures.is_signed(latest, keys):
        try:
            following = _read(store, latest.number + 1)
        except PublicationError:
            by = f"signed by {latest.signature.key}" if latest.signature is not None else "not signed"
            raise SignatureError(
                f"publication {latest.number} of {store.uri} is {by}, and {signatures.TRUSTED_KEYS} trusts "
                f"{', '.join(keys)} only; publish a version with a trusted key, or add the key of the publisher"
            ) from None
        if following.previous != latest.sha:
            raise _changed(store, following.number)
        latest = following


def _changed(store: stores.Store, number: int) -> SignatureError:
    return SignatureError(
        f"the publication before publication {number} of {store.uri} is not the one that {number} names: the history "
        "was changed; find out who can write to the index, and restore its publications"
    )


def _read(store: stores.Store, number: int) -> Publication:
    name = f"publications/{publication_name(number)}"
    data = store.get(name)
    if data is None:
        raise PublicationError(f"{store.uri} has no publication {number}; give the number of an existing one")
    try:
        with parsing(f"{store.uri}/{name} is no publication", "publish a version again"):
            found = Publication.from_json(json.loads(data))
            if found.number != number:
                raise ValueError(f"its number is {found.number}")
    except FormatVersionError as error:
        raise FormatVersionError(f"{store.uri}/{name}: {error}") from error
    if not is_sha256(found.version):
        raise ArtifactError(
            f"{store.uri}/{name} names the version {found.version!r}, which is no sha256; it cannot be trusted: "
            "publish a version again"
        )
    return found


def create_publication(index: stores.Store | Path, publication: Publication) -> bool:
    """Create a publication unless its number is taken, so that one of several writers wins each number.

    Returns:
        True if this call created it.
    """
    name = f"publications/{publication_name(publication.number)}"
    return stores.as_store(index).put_new(name, record_bytes(publication.to_json()))


def pin_publication(index: stores.Store | Path, number: int, *, by: str, reason: str) -> tuple[PublicationPin, bool]:
    """Keep a publication and its version from retention.

    Returns:
        The pin, and whether this call created it; an existing pin stays as it is.
    """
    store = stores.as_store(index)
    publication = read_publication(store, number)
    pin = PublicationPin(number, publication.version, datetime.now(UTC).isoformat(timespec="seconds"), by, reason)
    if not store.put_new(_pin_name(number), record_bytes(pin.to_json())):
        found = read_pin(store, number)
        if found is not None:
            return found, False
        raise PublicationError(f"publication {number} of {store.uri} was unpinned at the same time; pin it again")
    try:
        read_publication(store, number)
    except PublicationError:
        store.delete(_pin_name(number))
        raise
    log.info("publication pinned", extra={"fields": {"index": store.uri, **pin.to_json()}})
    return pin, True


def unpin_publication(index: stores.Store | Path, number: int) -> PublicationPin:
    """Remove the pin of a publication and return it."""
    store = stores.as_store(index)
    pin = read_pin(store, number)
    if pin is None:
        pinned = ", ".join(map(str, pinned_numbers(store))) or "none"
        raise PublicationError(f"publication {number} of {store.uri} is not pinned; pinned are: {pinned}")
    store.delete(_pin_name(number))
    log.info("publication unpinned", extra={"fields": {"index": store.uri, "number": number}})
    return pin


def pinned_numbers(index: stores.Store | Path) -> list[int]:
    """Return the numbers of all pinned publications, ascending."""
    return _numbers(index, "pins")


def read_pins(index: stores.Store | Path) -> list[PublicationPin]:
    """Return all pins, by number."""
    return [pin for pin in [read_pin(index, number) for number in pinned_numbers(index)] if pin is not None]


def read_pin(index: stores.Store | Path, number: int) -> PublicationPin | None:
    """Return the pin of a publication; None: it is not pinned."""
    store, name = stores.as_store(index), _pin_name(number)
    data = store.get(name)
    if data is None:
        return None
    with parsing(f"{store.uri}/{name} is no pin", "delete the file and pin the publication again"):
        pin = PublicationPin.from_json(json.loads(data))
        if pin.number != number or not is_sha256(pin.version):
            raise ValueError(f"it names publication {pin.number} and version {pin.version!r}")
    return pin


def delete_publication(index: stores.Store | Path, number: int) -> bool:
    """Delete a publication unless it is pinned; return whether it was deleted."""
    store, name = stores.as_store(index), f"publications/{publication_name(number)}"
    data = store.get(name)
    if data is None or store.entry(_pin_name(number)) is not None:
        return False
    store.delete(name)
    if store.entry(_pin_name(number)) is None:
        return True
    store.put_new(name, data)  # pinned meanwhile
    return False


def _numbers(index: stores.Store | Path, folder: str) -> list[int]:
    names = stores.as_store(index).names(folder)
    return sorted(int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name)))


def _pin_name(number: int) -> str:
    return f"pins/{publication_name(number)}"
