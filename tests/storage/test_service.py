"""Answers of the service behind a store: names, pages of listings, ranges, parts and refusals."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.errors import StorageError
from lsr_prod.storage import ObjectChangedError, Store
from lsr_prod.storage.formats.digests import digest_path
from lsr_prod.storage.remote import PART_BYTES
from tests.objectstore.endpoint import GIVEN

NAMES = [
    *("a b", "a+b", "a%b", "a%20b", "ü/ö", "日本", "a&b=c", "a?b", "a#b", "a;b", "a'b", 'a"b', "a(b)", "a!b", "a*b"),
    *("a~b", "a:b", "a,b", "a@b", "a$b", "a<b>", "a|b", "a^b", "a`b", "a{b}", "a.b", "a/b"),
]


@pytest.fixture
def store(tmp_path: Path, s3_options: dict[str, str]) -> Store:
    return Store(f"s3://lsr/service-{tmp_path.name}", s3_options)


@pytest.mark.parametrize("folder", ["plain", "with space+and ü"])
def test_names_with_syntax_of_urls_are_kept_as_they_are(store: Store, folder: str) -> None:
    inside = store.child(folder)
    for name in NAMES:
        assert inside.put_new(name, name.encode())
        assert not inside.put_new(name, b"")
    assert inside.names() == sorted(NAMES)
    assert [inside.get(name) for name in NAMES] == [name.encode() for name in NAMES]
    inside.delete_all(NAMES)
    assert store.names() == []


@pytest.mark.long
def test_listing_of_more_than_one_page_is_complete(store: Store) -> None:
    names = [f"{number // 100}/{number:05d}" for number in range(1101)]
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda name: store.put_new(name, b""), names))
    assert store.names() == sorted(names)
    assert store.names("1") == [name for name in names if name.startswith("1/")]
    store.delete_all(names)
    assert store.names() == []


def test_ranges_of_an_object_in_parts_end_with_the_object(store: Store, tmp_path: Path) -> None:
    data = random.Random(0).randbytes(2 * PART_BYTES + 5)
    (tmp_path / "source").write_bytes(data)
    store.put_file("x", tmp_path / "source", digest_path(tmp_path / "source"))
    assert store.read_range("x", PART_BYTES - 2, 4) == data[PART_BYTES - 2 : PART_BYTES + 2]
    assert store.read_range("x", 2 * PART_BYTES, 100) == data[-5:]
    with pytest.raises(StorageError, match="could not be read"):
        store.read_range("x", len(data), 1)


def test_object_in_parts_has_another_etag_after_its_replacement(store: Store, tmp_path: Path) -> None:
    for content in (b"a", b"b"):
        (tmp_path / content.decode()).write_bytes(content * (PART_BYTES + 1))
    store.put_file("x", tmp_path / "a", digest_path(tmp_path / "a"))
    with store.open_reader("x") as reader:
        assert reader.read(8) == b"a" * 8
        store.put_file("x", tmp_path / "b", digest_path(tmp_path / "b"))
        reader.seek(PART_BYTES)
        with pytest.raises(ObjectChangedError):
            reader.read(1)


@pytest.mark.skipif(GIVEN not in os.environ, reason="moto accepts any secret; make store-test runs it")
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_refused_with_the_answer_of_the_service(
    store: Store, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    store.put_new("x", b"1")
    monkeypatch.setenv(variable, "wrong")
    other = Store(store.uri, {**store.options, "user_agent": variable})  # a client that reads the environment now
    for use in (lambda: other.get("x"), lambda: other.put_new("y", b"1"), other.names, lambda: other.delete("x")):
        with pytest.raises(StorageError, match=r"Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch"):
            use()
    with pytest.raises(StorageError):
        other.entry("x")
    assert store.names() == ["x"]
