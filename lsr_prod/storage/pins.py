"""Pins of publications, and the deletion of publications that nobody has pinned.

A pin is a file that is created only if absent. A pin that is created while retention runs is either seen by retention,
which then keeps the publication and its version, or refused: ``pin_publication`` looks for the publication after it has
created the pin, and ``delete_publication`` looks for a pin after it has deleted the publication, which it puts back.

Functions take the folder of an index, or a ``Store``.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.formats.pin import PublicationPin
from lsr_prod.formats.publication import publication_name
from lsr_prod.logs import get_log
from lsr_prod.storage.publications import read_publication
from lsr_prod.storage.store import Store, as_store

log = get_log(__name__)

_PIN = re.compile(r"pins/(\d{6,})\.json")
_SHA = re.compile(r"[0-9a-f]{64}")


def pin_publication(index: Store | Path, number: int, *, by: str, reason: str) -> tuple[PublicationPin, bool]:
    """Keep a publication and its version from retention.

    Returns:
        The pin, and whether this call created it; an existing pin stays as it is.
    """
    store = as_store(index)
    publication = read_publication(store, number)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    pin = PublicationPin(number, publication.version, now, by, reason)
    if not store.put_new(_name(number), record_bytes(pin.to_json())):
        found = read_pin(store, number)
        if found is not None:
            return found, False
        raise PublicationError(f"publication {number} of {store.uri} was unpinned at the same time; pin it again")
    try:
        read_publication(store, number)
    except PublicationError:
        store.delete(_name(number))
        raise
    log.info("publication pinned", extra={"fields": {"index": store.uri, **pin.to_json()}})
    return pin, True


def unpin_publication(index: Store | Path, number: int) -> PublicationPin:
    """Remove the pin of a publication and return it."""
    store = as_store(index)
    pin = read_pin(store, number)
    if pin is None:
        pinned = ", ".join(map(str, pinned_numbers(store))) or "none"
        raise PublicationError(f"publication {number} of {store.uri} is not pinned; pinned are: {pinned}")
    store.delete(_name(number))
    log.info("publication unpinned", extra={"fields": {"index": store.uri, "number": number}})
    return pin


def pinned_numbers(index: Store | Path) -> list[int]:
    """Return the numbers of all pinned publications, ascending."""
    return sorted(int(match[1]) for name in as_store(index).names("pins") if (match := _PIN.fullmatch(name)))


def read_pins(index: Store | Path) -> list[PublicationPin]:
    """Return all pins, by number."""
    pins = [read_pin(index, number) for number in pinned_numbers(index)]
    return [pin for pin in pins if pin is not None]


def read_pin(index: Store | Path, number: int) -> PublicationPin | None:
    """Return the pin of a publication; None: it is not pinned."""
    store, name = as_store(index), _name(number)
    data = store.get(name)
    if data is None:
        return None
    try:
        pin = PublicationPin.from_json(json.loads(data))
        if pin.number != number or not _SHA.fullmatch(pin.version):
            raise ValueError(f"it names publication {pin.number} and version {pin.version!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{store.uri}/{name} is no pin ({error!r}); delete the file and pin the publication again"
        ) from error
    return pin


def delete_publication(index: Store | Path, number: int) -> bool:
    """Delete a publication unless it is pinned; return whether it was deleted."""
    store, name = as_store(index), f"publications/{publication_name(number)}"
    data = store.get(name)
    if data is None or store.entry(_name(number)) is not None:
        return False
    store.delete(name)
    if store.entry(_name(number)) is None:
        return True
    store.put_new(name, data)  # pinned meanwhile
    return False


def _name(number: int) -> str:
    return f"pins/{publication_name(number)}"
