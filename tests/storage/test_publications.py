"""Publications: the newest that can be read, and errors that name the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, FormatVersionError, PublicationError, SignatureError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from lsr_prod.storage.formats.index_format import Publication, publication_name
from lsr_prod.storage.publications import (
    create_publication,
    current_publication,
    find_current_publication,
    publication_numbers,
    read_publication,
)
from lsr_prod.storage.signatures import SIGNING_KEY, TRUSTED_KEYS, sign
from tests.storage.keys import KEYS, private, public


def make(index: Path, count: int) -> list[Publication]:
    """Create publications, each with the digest of the one before, signed if this process has a key."""
    made: list[Publication] = []
    for number in range(1, count + 1):
        before = made[-1].sha if made else ""
        made.append(sign(Publication(number, f"{number:064x}", "2026-11-23T00:00:00+00:00", previous=before)))
        assert create_publication(index, made[-1])
    return made


def overwrite(index: Path, publication: Publication, number: int) -> None:
    (index / "publications" / publication_name(number)).write_bytes(record_bytes(publication.to_json()))


def test_number_is_taken_once_and_the_largest_is_current(tmp_path: Path) -> None:
    with pytest.raises(PublicationError, match=r"has no publication; build an index there"):
        current_publication(tmp_path)
    made = make(tmp_path, 2)
    (tmp_path / "publications" / ".000009.json.0f.tmp").touch()
    (tmp_path / "publications" / "000009.json.old").touch()
    assert not create_publication(tmp_path, replace(made[0], number=2))
    assert publication_numbers(tmp_path) == [1, 2]
    assert current_publication(tmp_path) == made[1]


@pytest.mark.parametrize("left", [[2], []])
def test_publication_that_is_deleted_before_it_is_read_is_followed_by_the_next_one_or_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    made = make(tmp_path, 1)
    get = Store.get

    def late(store: Store, name: str) -> bytes | None:
        monkeypatch.setattr(Store, "get", get)
        (tmp_path / name).unlink()
        for number in left:
            create_publication(tmp_path, replace(made[0], number=number))
        return get(store, name)

    monkeypatch.setattr(Store, "get", late)
    found = find_current_publication(tmp_path)
    assert [found.number if found else None] == (left or [None])


def test_publication_that_is_listed_but_never_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 1)
    monkeypatch.setattr(Store, "get", lambda *_: None)
    with pytest.raises(PublicationError, match="has no publication 1; give the number of an existing one"):
        find_current_publication(tmp_path)


def test_file_with_another_number_or_a_version_that_is_no_sha256_is_no_publication(tmp_path: Path) -> None:
    made = make(tmp_path, 1)[0]
    overwrite(tmp_path, replace(made, number=7), 1)
    with pytest.raises(ArtifactError, match=r"000001.json is no publication .*its number is 7"):
        read_publication(tmp_path, 1)
    overwrite(tmp_path, replace(made, version="latest"), 1)
    with pytest.raises(ArtifactError, match="names the version 'latest', which is no sha256"):
        read_publication(tmp_path, 1)


def test_history_of_a_signed_publication_is_compared_with_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SIGNING_KEY, private(KEYS[0]))
    monkeypatch.setenv(TRUSTED_KEYS, public(KEYS[0]))
    made = make(tmp_path, 2)
    assert [read_publication(tmp_path, number) for number in (1, 2)] == made
    first = sign(replace(made[0], previous="f" * 64))  # publication 1 has none before it
    overwrite(tmp_path, first, 1)
    with pytest.raises(SignatureError, match="history was changed"):
        read_publication(tmp_path, 1)
    (tmp_path / "publications" / publication_name(1)).write_text("{}")
    with pytest.raises(SignatureError, match="history was changed"):
        read_publication(tmp_path, 2)
    (tmp_path / "publications" / publication_name(1)).unlink()  # by retention
    assert read_publication(tmp_path, 2) == made[1]
    old = replace(made[1], previous="", signature=None)
    overwrite(tmp_path, old, 2)
    with pytest.raises(SignatureError, match=r"publication 2 of .* is not signed"):
        read_publication(tmp_path, 2)


def test_unsigned_publication_is_read_only_in_the_history_of_a_signed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SIGNING_KEY, raising=False)
    monkeypatch.delenv(TRUSTED_KEYS, raising=False)
    first = make(tmp_path, 1)[0]
    monkeypatch.setenv(TRUSTED_KEYS, public(KEYS[0]))
    with pytest.raises(SignatureError, match=r"publication 1 of .* is not signed"):
        read_publication(tmp_path, 1)
    monkeypatch.setenv(SIGNING_KEY, private(KEYS[1]))
    monkeypatch.setenv(TRUSTED_KEYS, f"{public(KEYS[0])},{public(KEYS[1])}")
    create_publication(tmp_path, sign(Publication(2, "b" * 64, "2026-11-23T00:00:00+00:00", previous=first.sha)))
    assert read_publication(tmp_path, 1) == first
    monkeypatch.setenv(TRUSTED_KEYS, public(KEYS[0]))
    with pytest.raises(SignatureError, match=r"publication 2 of .* is signed by "):
        read_publication(tmp_path, 1)
    monkeypatch.setenv(TRUSTED_KEYS, public(KEYS[1]))
    overwrite(tmp_path, replace(first, note="changed"), 1)
    with pytest.raises(SignatureError, match="history was changed"):
        read_publication(tmp_path, 1)


def test_publication_of_another_format_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "publications").mkdir()
    (tmp_path / "publications" / "000001.json").write_text('{"number": 1, "format": 99}')
    with pytest.raises(FormatVersionError, match=r"publications/000001\.json: .*99"):
        read_publication(tmp_path, 1)
