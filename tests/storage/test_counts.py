from pathlib import Path

import pytest

from lsr_prod.storage import Store
from lsr_prod.storage.remote import StoreCounts, store_counts


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(str(tmp_path / "folder"))
    return Store("s3://lsr/counts", request.getfixturevalue("s3_options"))


def test_every_request_and_byte_of_a_store_is_counted(store: Store):
    before = store_counts()
    store.put_new("a", b"12345")
    assert store.get("a") == b"12345"
    with store.open_reader("a") as file:
        assert file.read(2) == b"12"
    store.names()
    store.entry("a")
    store.delete("a")
    counts = store_counts() - before
    assert counts.requests["put"] == counts.requests["list"] == counts.requests["delete"] == 1
    assert counts.requests["get"] == 2
    assert counts.requests["head"] >= 1
    assert (counts.bytes_written, counts.bytes_read) == (5, 10)  # a piece is read whole


def test_counts_add_up():
    one, two = StoreCounts({"get": 2}, 5, 0), StoreCounts({"get": 1, "put": 1}, 1, 7)
    assert one + two == StoreCounts({"get": 3, "put": 1}, 6, 7)
    assert (one + two) - two == one
