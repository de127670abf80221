"""Pins are created once, and neither a pin nor its publication is lost when retention runs at the same time."""

from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from lsr_prod.storage.formats.index_format import Publication
from lsr_prod.storage.publications import (
    create_publication,
    delete_publication,
    pin_publication,
    pinned_numbers,
    publication_numbers,
    read_pin,
    read_pins,
    unpin_publication,
)

WHY = {"by": "ada", "reason": "audit"}


@pytest.fixture(params=["folder", "s3"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an index with publications and without versions."""
    s3 = request.param == "s3"
    options = request.getfixturevalue("s3_options") if s3 else {}
    store = Store(f"s3://lsr/pins-{tmp_path.name}" if s3 else str(tmp_path / "index"), options)
    for number in (1, 2, 3):
        create_publication(store, Publication(number, f"{number:064x}", "2026-11-23T00:00:00+00:00"))
    return store


def test_pin_is_created_once_with_who_and_why(index: Store) -> None:
    pin, created = pin_publication(index, 2, **WHY)
    assert created
    assert (pin.number, pin.version, pin.by, pin.reason) == (2, f"{2:064x}", "ada", "audit")
    assert pin_publication(index, 2, by="bob", reason="other") == (pin, False)
    assert read_pins(index) == [pin]
    assert not delete_publication(index, 2)
    assert unpin_publication(index, 2) == pin
    assert pinned_numbers(index) == []
    assert delete_publication(index, 2)
    assert publication_numbers(index) == [1, 3]


def test_pin_of_unknown_publication_and_unpin_of_one_that_is_not_pinned_are_refused(index: Store) -> None:
    with pytest.raises(PublicationError, match="no publication 9"):
        pin_publication(index, 9, **WHY)
    pin_publication(index, 1, **WHY)
    with pytest.raises(PublicationError, match=r"publication 2 of .* is not pinned; pinned are: 1"):
        unpin_publication(index, 2)


def test_pin_that_comes_after_deletion_is_refused_and_leaves_no_pin(
    index: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_new = Store.put_new

    def late(store: Store, name: str, data: bytes) -> bool:
        if name.startswith("pins/"):
            assert delete_publication(store, 1)
        return put_new(store, name, data)

    monkeypatch.setattr(Store, "put_new", late)
    with pytest.raises(PublicationError, match="no publication 1"):
        pin_publication(index, 1, **WHY)
    assert pinned_numbers(index) == []


def test_publication_that_is_pinned_during_its_deletion_is_put_back(
    index: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Store.delete

    def late(store: Store, name: str) -> None:
        monkeypatch.setattr(Store, "delete", delete)
        pin_publication(store, 1, **WHY)
        delete(store, name)

    monkeypatch.setattr(Store, "delete", late)
    assert not delete_publication(index, 1)
    assert publication_numbers(index) == [1, 2, 3]
    assert pinned_numbers(index) == [1]


def test_damaged_pin_is_reported(tmp_path: Path) -> None:
    index = tmp_path / "index"
    create_publication(index, Publication(1, "a" * 64, "2026-11-23T00:00:00+00:00"))
    pin_publication(index, 1, **WHY)
    file = index / "pins" / "000001.json"
    file.write_bytes(file.read_bytes().replace(b"audit", b"other"))
    with pytest.raises(ArtifactError, match="the pin differs from its recorded sha256"):
        read_pin(index, 1)


def test_pin_of_another_publication_or_of_no_sha256_is_reported(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    create_publication(index, Publication(1, "a" * 64, "2026-11-23T00:00:00+00:00"))
    with pytest.raises(PublicationError, match="pinned are: none"):
        unpin_publication(index, 1)
    pin, _ = pin_publication(index, 1, **WHY)
    file = tmp_path / "pins" / "000001.json"
    for wrong in (replace(pin, number=2), replace(pin, version="latest")):
        file.write_bytes(record_bytes(wrong.to_json()))
        with pytest.raises(ArtifactError, match=rf"names publication {wrong.number} and version '{wrong.version}'"):
            read_pin(index, 1)


def test_pin_that_is_removed_at_the_same_time_is_an_error_or_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Store(str(tmp_path))
    for number in (1, 2):
        create_publication(index, Publication(number, "a" * 64, "2026-11-23T00:00:00+00:00"))
        pin_publication(index, number, **WHY)
    get = Store.get

    def late(store: Store, name: str) -> bytes | None:
        if name == "pins/000001.json":
            (tmp_path / name).unlink(missing_ok=True)
        return get(store, name)

    monkeypatch.setattr(Store, "get", late)
    with pytest.raises(PublicationError, match=r"publication 1 of .* was unpinned at the same time; pin it again"):
        pin_publication(index, 1, **WHY)
    pin_publication(index, 1, **WHY)
    assert [pin.number for pin in read_pins(index)] == [2]


def test_pinned_publication_is_readable_while_its_deletion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Store(str(tmp_path))
    create_publication(index, Publication(1, "a" * 64, "2026-11-23T00:00:00+00:00"))
    pin_publication(index, 1, **WHY)
    deleted: list[str] = []
    monkeypatch.setattr(Store, "delete", lambda _, name: deleted.append(name))
    assert not delete_publication(index, 1)
    assert deleted == []


def test_unknown_publication_is_not_deleted_and_drafts_are_no_pins(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    assert not delete_publication(index, 1)
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / ".000001.json.0f.tmp").touch()
    (tmp_path / "pins" / "000002.json.old").touch()
    assert pinned_numbers(index) == []
